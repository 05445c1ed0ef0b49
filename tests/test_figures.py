"""Filled tables as drawings: SVG that holds the numbers, looks the same every time and belongs in a page."""

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from tables import HOSTILE, SAMPLES, drawn, of_other_data, offline_table, one_column, over_x, source

from pta.errors import MissingPackage
from pta.measure.report.figures import KINDS, draw
from pta.measure.reproduce.declaration import Figure
from pta.measure.reproduce.table import Cell

pytest.importorskip("matplotlib")
SVG = "{http://www.w3.org/2000/svg}"
EVERY = [(drawn("bars"), 1), (drawn("curves"), 2), (over_x(), 1)]


def parsed(svg):
    """The texts that are seen, and the words for those who do not see them."""
    root = ElementTree.fromstring(svg)
    return [one.text for one in root.iter(f"{SVG}text")], root.find(f"{SVG}desc").text


@pytest.fixture
def panel():
    from matplotlib.figure import Figure as Drawing

    return Drawing().subplots()


def lines_of(panel, kind, table):
    KINDS[kind](panel, table, 0)
    return {line.get_label(): line for line in panel.lines if len(line.get_xdata()) > 1}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("table", "across"), EVERY)
def test_a_drawing_is_xml_and_the_same_every_time(table, across):
    svg = draw(table, across=across)
    assert svg == draw(table, across=across)
    root = ElementTree.fromstring(svg)
    spoken = [root.find(f"{SVG}{name}").get("id") for name in ("title", "desc")]
    assert (root.tag, root.get("role"), root.get("aria-labelledby").split()) == (f"{SVG}svg", "img", spoken)
    assert table.headings[0] in parsed(svg)[0]  # letters, not outlines of letters
    assert not any(said in svg for said in ("<style", "<metadata", "#123456"))


def test_drawings_can_stand_in_one_page():
    roots = [ElementTree.fromstring(svg) for svg in (draw(drawn("bars")), draw(over_x()), draw(over_x(), across=2))]
    ids = [{one.get("id") for one in root.iter() if one.get("id")} for root in roots]
    assert all(ids)
    assert len(set.union(*ids)) == sum(map(len, ids))
    for root, own in zip(roots, ids, strict=True):
        hrefs = (one.get("{http://www.w3.org/1999/xlink}href") for one in root.iter(f"{SVG}use"))
        assert {href.removeprefix("#") for href in hrefs} <= own


def test_bars_carry_their_numbers():
    texts, desc = parsed(draw(drawn("bars", columns=("Mean",))))
    seen = {text.strip() for text in texts}
    assert {"65.25", "65.00", "67.69", "70.53", "70.19", "not yet", "ours", "paper", "Mean", "accuracy in %"} <= seen
    assert not {"DTD", "99.50"} & seen  # a deviation is no accuracy
    assert "CLIP 65.25 (paper 65.00)" in desc
    assert HOSTILE in desc


def test_a_bar_of_what_was_timed_shows_its_spread(panel):
    rounds = source("A", "pta", *[0.0] * 3)
    records = (one | {"share_of_clip": share} for one, share in zip(rounds.records, (80.0, 70.0, 95.0), strict=True))
    cell = Cell(80.0, metric="share_of_clip", sources=(replace(rounds, records=tuple(records)),))
    lines = lines_of(panel, "bars", one_column(cell, figure=Figure("bars")))
    assert list(lines["least and most"].get_xdata()) == [70.0, 95.0]
    assert panel.get_xlim()[1] > 95


def test_other_data_are_not_taken_for_the_papers():
    for table in (drawn("bars", offline_table()), of_other_data(over_x())):
        texts, desc = parsed(draw(table))
        assert any("paper, its own data" in text for text in texts)
        assert "paper" not in texts
        assert "(paper, its own data" in desc


def test_curves_are_means_over_seeds_and_zero_shot_is_one_where_no_row_is_it(panel):
    table = drawn("curves")
    curves = lines_of(panel, "curves", table)
    assert list(curves["No training: PTA"].get_xdata()) == SAMPLES
    assert list(curves["No training: PTA"].get_ydata()) == pytest.approx([68.12, 69.12, 70.12])
    assert curves["CLIP"].get_color() == "#8b929a"
    assert "zero-shot" not in curves
    assert [line.get_ydata()[0] for line in panel.lines if len(line.get_xdata()) == 1] == [60.0, 69.38]  # the paper's
    curves = lines_of(panel, "curves", replace(table, lines=table.lines[2:]))
    assert list(curves["zero-shot"].get_ydata()) == [59.0, 60.0, 61.0]


@pytest.mark.parametrize(
    ("table", "shown", "hidden"),
    [
        (drawn("curves", x="samples so far"), {"DTD", "Cars", "samples so far"}, {"Mean"}),  # a mean has no stream
        (drawn("bars", offline_table(), columns=("Pets",)), {"fog", "blur", "Mean"}, set()),  # else there were none
        (one_column(Cell(missing="not yet"), labels=("_TPT",), figure=Figure("curves")), {"not yet"}, set()),
        (
            one_column(Cell(1.0), Cell(2.0), Cell(3.0), labels=("_hidden", "$x^{$", "<b>&"), figure=Figure("bars")),
            {"\N{ZERO WIDTH SPACE}_hidden", "$x^{$", "<b>&"},  # text, never mathematics or markup
            set(),
        ),
    ],
)
def test_what_is_seen(table, shown, hidden):
    texts, _ = parsed(draw(replace(table, experiment=replace(table.experiment, id="a b<"))))
    assert shown <= set(texts)
    assert not hidden & set(texts)


def test_lines_draw_ours_and_the_papers_even_alone(panel):
    lines = lines_of(panel, "lines", over_x())
    assert list(lines["pta"].get_xdata()) == [1.0, 10.0, 100.0]
    assert list(lines["pta"].get_ydata()) == [40.0, 41.0, 42.0]
    assert list(lines["point_cache: paper"].get_ydata()) == [33.5, 34.5, 35.5]
    assert lines["point_cache: paper"].get_linestyle() == "--"
    assert "point_cache" not in lines
    assert list(lines["zero-shot"].get_ydata()) == [35.0, 35.0]  # a level
    assert panel.get_xscale() == "log"


def test_what_cannot_be_drawn_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # whoever imports it fails: its state is global
    assert draw(drawn("bars"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"pip install 'pta-vlm\[figures\]'"):
        draw(drawn("bars"))
