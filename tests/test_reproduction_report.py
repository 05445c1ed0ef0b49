"""The report of a reproduction: what it says, that it loads nothing, and that a phone can show it."""

import re
from dataclasses import replace
from html import unescape

import pytest
from markupsafe import escape
from pages import FAULTS, PHONE, Balance, assert_loads_nothing, looking, needs_browser
from tables import HOSTILE, offline_table, one_column, over_x, paper_table, wide_table

from pta.measure.report.figures import draw
from pta.measure.report.reproduction_page import render_report
from pta.measure.reproduce.table import Cell

MADE = {"machine": "Some <CPU> & more", "software": "pta 0.1.0"}


@pytest.fixture(scope="module")
def page():
    """Two tables that can be compared with the paper, one of them drawn, and one that cannot."""
    pytest.importorskip("matplotlib")
    tables = [paper_table(), offline_table(), over_x()]
    return render_report(tables, {"figure4": [draw(over_x()), draw(over_x(), across=2)]}, made=MADE)


def alone(table):
    return render_report([table], {}, made={})


def rows_of(table):
    """The texts of the cells of every row of the report of a table; a slash stands before what is small."""
    page = alone(table).replace("\n", "")
    rows = [re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row) for row in re.findall(r"<tr.*?</tr>", page)]
    return [[unescape(re.sub("<[^>]+>", "", cell.replace("<small>", " / "))) for cell in row] for row in rows]


def test_every_number_stands_with_the_papers_and_the_difference():
    rows = rows_of(paper_table())
    assert rows[:8] == [
        ["accuracy in %", "DTD", "Cars", "Mean", "gain over CLIP"],
        ["CLIP", "60.50 / 60.00* +0.50", "70.00 / 70.00 0.00", "65.25 / 65.00 +0.25", ""],
        ["Training", ""],
        ["TPT", "not yet / 66.87", "not yet / 66.87*", "not yet / 67.69", "not yet / paper: +2.69"],
        ["No training", ""],
        ["PTA", "70.12 / 69.38 +0.74", "70.95 / 71.00 −0.05", "70.53 / 70.19 +0.34", "+5.29 / paper: +5.19"],
        ["± over seeds", "99.00", "0.07", "99.50", ""],
        [HOSTILE, "50.00", "no data", "50.00 / [1 of 2]", "−10.50 / paper: +2.00 / [1 of 2]"],
    ]


def test_a_difference_is_coloured_by_what_it_means_and_the_summary_counts_cells():
    page = alone(paper_table())  # 15 cells: three of TPT's are missing, one has no data
    for said in (
        '<span class="gain">+0.74</span>',
        '<span class="loss">−0.05</span>',
        '<span class="">0.00</span>',
        "<h1>The paper, reproduced: 11 of 15 numbers measured</h1>",
        "<b>1</b><span>missing data",
        "<b>3</b><span>missing for another reason",
    ):
        assert said in page
    assert '<span class="">+1.00</span>' in alone(one_column(Cell(2.0, 1.0, metric="memory_mib")))


def test_every_number_of_ours_says_where_it_comes_from():
    table = paper_table()
    rows = rows_of(table)
    begin = next(at for at, row in enumerate(rows) if row[:3] == ["row", "column", "dataset"])
    end = next(at for at, row in enumerate(rows) if row[:2] == ["row", "dataset"])
    told = rows[begin + 1 : end]
    record, other = table.lines[2].cells[0].records
    features, *keys = (text[:12] for text in (record["made"]["features"], record["made"]["key"], other["made"]["key"]))
    of_dtd = ["No training: PTA", "DTD", "DTD", "pta", "h = 20.0, anchor = recursive", "coop", "crops"]
    of_dtd += ["kind = iid, batch = 256, drop_last = False, lookahead = False", "1: 70.000, 2: 70.240", "200", features]
    of_dtd += ["0.1.0+abcdef012345", "Some CPU; 2 thread(s); torch 2.9", "2026-05-04T03:02:01+00:00", "; ".join(keys)]
    assert of_dtd in told
    assert ["No training: PTA", "Mean", "mean of DTD, Cars"] in told
    assert ["No training: PTA", "gain over CLIP", "this row’s numbers less those of CLIP"] in told
    for line in table.lines:
        for heading, cell in zip(table.headings, line.cells, strict=True):
            assert any(row[:2] == [line.row.name, heading] for row in told) == (cell.ours is not None)


def test_what_else_was_counted_is_a_mean_over_seeds():
    rows = rows_of(paper_table())
    of_dtd = "No training: PTA|DTD|70.12|50.50 (boot)|4.50|9.50|15.0|1.5|0.375|4,096 bytes"
    assert of_dtd.split("|") in rows
    assert not any(row[0] == "No training: ± over seeds" and len(row) == 10 for row in rows)


def test_records_that_lack_something_are_shown_as_they_are():
    bare = {"dataset": "A", "method": "pta", "params": {}, "seed": 1, "images_per_second": 12.5, "accuracy": None}
    source = replace(paper_table().lines[0].cells[0].sources[0], dataset="A", records=(bare,))
    cell = Cell(12.5, metric="images_per_second", sources=(source,))
    rows = rows_of(one_column(cell, labels=("PTA",)))
    assert ["PTA", "A", "A", "pta", "", "coop", "crops", "", "1: 12.500", "", "", "", "", "", ""] in rows


def test_contents_lead_to_every_part(page):
    links = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', page)
    assert [name for _, name in links] == ["Table 1: Ten datasets", "Table 1: Ten datasets", "Figure 4: Over severity"]
    for target, _ in links:
        assert page.count(f'id="{target}"') == 1


def test_everything_is_said_and_escaped(page):
    assert all(escape(said) in page for said in (*paper_table().remarks, "With & without", *MADE.values()))
    table = paper_table()
    experiment = replace(table.experiment, id=HOSTILE, title=HOSTILE, place=HOSTILE, unit=HOSTILE, note=HOSTILE)
    named = {"headings": (HOSTILE, "B", "Mean", "gain"), "about": {HOSTILE: HOSTILE}, "absent": {HOSTILE: HOSTILE}}
    lines = tuple(replace(line, row=replace(line.row, note=HOSTILE)) for line in table.lines)
    hostile = replace(table, experiment=experiment, lines=lines, notes=(HOSTILE,), **named)
    page = render_report([hostile], {}, made={HOSTILE: HOSTILE})
    assert "<script" not in page
    assert page.count(escape(HOSTILE)) > 20


def test_the_report_needs_nothing_from_outside_and_its_tags_are_balanced(page):
    assert_loads_nothing(page)
    assert "<script" not in page
    assert all("svg" in inside for _, inside in Balance(page).closed_at_once)


LAYOUT = """() => {
  const root = document.documentElement, boxes = [...document.querySelectorAll(".scroll")];
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  const stuck = boxes.every((box) => {
    box.scrollLeft = 10000;
    return Math.abs(box.querySelector("tbody th").getBoundingClientRect().left - box.getBoundingClientRect().left) < 1;
  });
  const drawn = [...document.querySelectorAll("figure svg")].map((one) => one.getBoundingClientRect().width);
  return {
    overflow: root.scrollWidth - root.clientWidth,
    scrolled: boxes.some((box) => box.scrollLeft > 0),
    stuck,
    drawn: drawn.map((width) => width / document.querySelector("section").getBoundingClientRect().width),
    loaded: performance.getEntriesByType("resource").length,
  };
}"""


@needs_browser
@pytest.mark.parametrize(("width", "drawn"), [(PHONE, [1, 0]), (1400, [0, 1])])  # of the width there is
def test_a_phone_and_a_desktop_show_all_of_it_and_load_nothing(page, tmp_path, width, drawn):
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with looking(width) as look:
        seen = look((tmp_path / "report.html").as_uri(), LAYOUT)
    assert seen == {"overflow": 0, "scrolled": True, "stuck": True, "loaded": 0, "drawn": drawn}


@needs_browser
def test_a_phone_breaks_no_heading_inside_a_word_and_reaches_the_last_column(tmp_path):
    (tmp_path / "report.html").write_text(alone(wide_table()), encoding="utf-8")
    with looking(PHONE) as look:
        assert look((tmp_path / "report.html").as_uri(), FAULTS) == []
