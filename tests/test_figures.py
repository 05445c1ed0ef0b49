"""Filled tables as drawings: SVG that holds the numbers, looks the same every time and belongs in a page."""

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from tables import HOSTILE, SAMPLES, drawn, offline_table, one_column, over_x, paper_table

from pta.errors import InvalidParameter, MissingPackage
from pta.reproduction.declaration import Figure
from pta.reproduction.figures import draw
from pta.reproduction.panels import KINDS
from pta.reproduction.table import Cell

pytest.importorskip("matplotlib")
SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    """The element, the texts that are seen, and the words for those who do not see them."""
    root = ElementTree.fromstring(svg)
    return root, [one.text for one in root.iter(f"{SVG}text")], root.find(f"{SVG}desc").text


@pytest.fixture
def panel():
    from matplotlib.figure import Figure as Drawing

    return Drawing().subplots()


EVERY = [drawn("bars"), drawn("curves"), drawn("bars", offline_table()), over_x(), over_x(comparable=False)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("table", EVERY)
def test_a_drawing_is_xml_and_the_same_every_time(table):
    svg = draw(table)
    root, texts, _ = parsed(svg)
    assert svg == draw(table)
    assert root.tag == f"{SVG}svg"
    assert table.headings[0] in texts  # letters, not outlines of letters
    assert root.get("role") == "img"
    title, desc = root.get("aria-labelledby").split()
    assert root.find(f"{SVG}title").get("id") == title
    assert root.find(f"{SVG}desc").get("id") == desc
    assert "<style" not in svg
    assert "<metadata" not in svg
    assert "#123456" not in svg


def test_two_drawings_can_stand_in_one_page():
    pages = [draw(drawn("bars")), draw(over_x())]
    ids = [{one.get("id") for one in ElementTree.fromstring(svg).iter() if one.get("id")} for svg in pages]
    assert all(ids)
    assert not ids[0] & ids[1]
    for svg, own in zip(pages, ids, strict=True):
        used = ElementTree.fromstring(svg).iter(f"{SVG}use")
        assert {one.get("{http://www.w3.org/1999/xlink}href").removeprefix("#") for one in used} <= own


def test_bars_carry_their_numbers():
    _, texts, desc = parsed(draw(drawn("bars", columns=("Mean",))))
    seen = [text.strip() for text in texts]
    for number in ("65.25", "65.00", "67.69", "70.53", "70.19", "not yet"):
        assert number in seen
    assert {"ours", "paper", "Mean", "CLIP", "accuracy in %"} <= set(seen)
    assert "DTD" not in seen
    assert "99.50" not in seen  # a deviation is no accuracy
    assert "CLIP 65.25 (paper 65.00)" in desc
    assert HOSTILE in desc


def test_other_data_are_not_taken_for_the_papers():
    for table in (drawn("bars", offline_table()), over_x(comparable=False)):
        _, texts, desc = parsed(draw(table))
        assert any("paper, its own data" in text for text in texts)
        assert "paper" not in texts
        assert "(paper, its own data" in desc


def test_curves_are_means_over_seeds(panel):
    KINDS["curves"](panel, drawn("curves"), 0)
    curves = {line.get_label(): line for line in panel.lines if len(line.get_xdata()) > 1}
    assert list(curves["No training: PTA"].get_xdata()) == SAMPLES
    assert list(curves["No training: PTA"].get_ydata()) == pytest.approx([68.12, 69.12, 70.12])
    assert curves["CLIP"].get_color() == "#8b929a"
    marks = [line.get_ydata()[0] for line in panel.lines if len(line.get_xdata()) == 1]
    assert marks == [60.0, 69.38]


def test_zero_shot_is_drawn_where_no_row_is_it(panel):
    table = drawn("curves")
    KINDS["curves"](panel, replace(table, lines=table.lines[2:]), 0)
    grey = [line for line in panel.lines if line.get_label() == "zero-shot"]
    assert [list(line.get_ydata()) for line in grey] == [[59.0, 60.0, 61.0]]


def test_curves_are_of_datasets_not_of_means():
    _, texts, _ = parsed(draw(drawn("curves", x="samples so far")))
    assert {"DTD", "Cars", "samples so far"} <= set(texts)
    assert "Mean" not in texts


def test_where_the_declared_columns_are_not_there_all_are_drawn():
    _, texts, _ = parsed(draw(drawn("bars", offline_table(), columns=("Pets",))))
    assert {"fog", "blur", "Mean"} <= set(texts)


def test_lines_draw_ours_and_the_papers_even_alone(panel):
    KINDS["lines"](panel, over_x(), 0)
    lines = {line.get_label(): line for line in panel.lines}
    assert list(lines["pta"].get_xdata()) == [1.0, 10.0, 100.0]
    assert list(lines["pta"].get_ydata()) == [40.0, 41.0, 42.0]
    assert list(lines["point_cache: paper"].get_ydata()) == [33.5, 34.5, 35.5]
    assert lines["point_cache: paper"].get_linestyle() == "--"
    assert "point_cache" not in lines
    assert list(lines["zero-shot"].get_ydata()) == [35.0, 35.0]  # a level
    assert panel.get_xscale() == "log"


def test_a_panel_without_numbers_says_why():
    table = one_column(Cell(missing="not yet"), labels=("_TPT",), figure=Figure("curves"))
    assert "not yet" in parsed(draw(table))[1]


def test_labels_are_text_and_never_mathematics_or_markup():
    table = one_column(Cell(1.0), Cell(2.0), Cell(3.0), labels=("_hidden", "$x^{$", "<b>&"), figure=Figure("bars"))
    texts = parsed(draw(replace(table, experiment=replace(table.experiment, id="a b<"))))[1]
    assert {"\N{ZERO WIDTH SPACE}_hidden", "$x^{$", "<b>&"} <= set(texts)


def test_what_declares_no_figure_is_not_drawn():
    with pytest.raises(InvalidParameter, match="table1 declares no figure"):
        draw(paper_table())


def test_without_matplotlib_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"pip install 'pta-vlm\[figures\]'"):
        draw(drawn("bars"))


def test_a_drawing_leaves_pyplots_global_state_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # whoever imports it fails
    assert draw(drawn("bars"))
