"""Filled tables as words, Markdown, CSV, JSON and LaTeX."""

import csv
import io
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import of_other_data, offline_table, one_column, over_x, paper_table

from pta.measure.report.formats import latex_text, to_csv, to_json, to_latex, to_markdown
from pta.measure.report.reproduction_page import render_report
from pta.measure.reproduce.declaration import Erratum
from pta.measure.reproduce.table import Cell

WRONG = Erratum("CLIP", "DTD", 68.5, "why", 66.87)


@pytest.mark.parametrize(
    ("cell", "comparable", "offline"),
    [
        (Cell(70.12, 69.38), "70.12 / 69.38 / +0.74", "70.12"),
        (Cell(69.0, 69.38), "69.00 / 69.38 / -0.38", "69.00"),
        (Cell(69.381, 69.38), "69.38 / 69.38 / 0.00", "69.38"),
        (Cell(70.12), "70.12", "70.12"),
        (Cell(printed=66.87, missing="not yet"), "not yet / 66.87", "not yet"),
        (Cell(67.0, 68.5, erratum=WRONG), "67.00 / 66.87* / +0.13", "67.00"),
        (Cell(67.0, 68.5, erratum=replace(WRONG, instead=None)), "67.00 / 68.50* / -1.50", "67.00"),
        (Cell(70.12, 69.38, partial="3 of 10"), "70.12 [3 of 10] / 69.38 / +0.74", "70.12 [3 of 10]"),
        (Cell(102.0, 101.0, metric="classes"), "102 / 101 / +1", "102"),
        (Cell(70.12, 69.38, digits=1), "70.1 / 69.4 / +0.7", "70.1"),
        (Cell(), "–", "–"),
        # a gain has its sign, and the paper's stands beside it whatever the data are
        (Cell(1.234, 3.74, is_gain=True), "+1.23 / paper +3.74", "+1.23 / paper +3.74"),
        (Cell(-1.0, is_gain=True), "-1.00", "-1.00"),
        (Cell(printed=3.74, missing="no data", is_gain=True), "no data / paper +3.74", "no data / paper +3.74"),
    ],
)
def test_a_cell_says_ours_and_the_papers_only_of_the_same_data(cell, comparable, offline):
    table = one_column(cell)
    for said, shown in ((comparable, table), (offline, of_other_data(table))):
        assert " / ".join(shown.lines[0].cells[0].texts) == said


@pytest.mark.parametrize(
    ("cells", "best"),
    [
        ([Cell(50.001), Cell(50.004), Cell(49.0)], {0, 1}),  # they read the same
        ([Cell(50.0), Cell(missing="not yet")], set()),  # nothing to be better than
        ([Cell(50.0, partial="1 of 2"), Cell(51.0, partial="1 of 2")], {1}),
        ([Cell(50.0, partial="1 of 3"), Cell(51.0, partial="2 of 3")], set()),
        ([Cell(50.0), Cell(40.0), Cell(90.0, partial="1 of 2")], {0}),
        ([Cell(9.0), Cell(10.0)], {1}),
        ([Cell(1.0, metric="memory_mib"), Cell(2.0, metric="memory_mib")], set()),
    ],
)
def test_only_accuracies_that_can_be_compared_compete(cells, best):
    lines = one_column(*cells).lines
    assert {at for at, line in enumerate(lines) if line.cells[0].is_best} == best


def test_errata_are_explained_where_the_papers_numbers_stand():
    printed = paper_table().remarks
    assert "* Training: TPT, Cars: printed 68.50, corrected to 66.87: the row's mean needs another number" in printed
    assert "* CLIP, DTD: printed 60.00, cannot be right: it is the number of ResNet-50" in printed
    assert "Missing: Cars_196, Pets (no folder <cars>)." in printed
    assert not any("printed" in note for note in offline_table().remarks)


WRITERS = {
    **{"md": to_markdown, "csv": to_csv, "tex": to_latex},
    "html": lambda table: render_report([table], {}, made={}),
    "json": lambda table: json.dumps(to_json(table)),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_offline_none_of_the_papers_numbers_are_written_but_gains(write):
    written = write(offline_table())
    assert not any(said in written for said in ("69.38", "66.87", "the row's mean"))
    assert "5.19" in written
    assert all(said in write(paper_table()) for said in ("69.38", "66.87"))


def markdown_rows(text):
    """The cells of every line of the table, as GitHub parts them."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_markdown_shows_the_figure_that_was_drawn_above_the_table():
    before, after = to_markdown(over_x(), figure="figure4.svg").split("![Figure 4: Over severity](figure4.svg)")
    assert (before + after).replace("\n\n\n\n", "\n\n") == to_markdown(over_x())
    assert "|" in after
    assert "|" not in before


def test_markdown_has_every_cell():
    text = to_markdown(paper_table())
    head, rule, *rows = markdown_rows(text)
    above = "# Table 1: Ten datasets\n\nWith &amp; without training.\n\nmodel: ViT-B/16 &lt;b&gt;; seeds"
    assert text.startswith(above)
    assert (head, rule) == (["accuracy in %", "DTD", "Cars", "Mean", "gain over CLIP"], [":--", *["--:"] * 4])
    of_pta = ["**70.12** (69.38, +0.74)", "**70.95** (71.00, -0.05)", "**70.53** (70.19, +0.34)"]
    assert rows[:5] == [
        ["CLIP", r"60.50 (60.00\*, +0.50)", "70.00 (70.00, 0.00)", "65.25 (65.00, +0.25)", ""],
        ["**Training**", "", "", "", ""],
        ["TPT", "not yet (66.87)", r"not yet (66.87\*)", "not yet (67.69)", "not yet (paper: +2.69)"],
        ["**No training**", "", "", "", ""],
        ["PTA", *of_pta, "+5.29 (paper: +5.19)"],
    ]
    assert rows[-1][1:] == ["50.00", "no data", r"50.00 \[1 of 2\]", r"-10.50 (paper: +2.00) \[1 of 2\]"]
    assert all(len(row) == 5 for row in rows)
    assert "<" not in text
    assert "- No training: PTA: As it is.\n" in text


def test_csv_and_json_give_the_numbers_back_and_say_where_they_come_from():
    table = paper_table()
    written = csv.DictReader(io.StringIO(to_csv(table)))
    rows = {(row["row"], row["dataset"]): row for row in written}
    cells = {row["label"]: row["cells"] for row in to_json(table)["rows"]}
    assert len(rows) == 5 * 3 + 3
    for line in table.lines:
        for heading, cell in zip(table.headings[:3], line.cells[:3], strict=True):
            row, of_json = rows[line.row.label, heading], cells[line.row.label][heading]
            for name in ("ours", "paper", "printed", "difference"):
                assert row[name] == ("" if getattr(cell, name) is None else repr(getattr(cell, name)))
                assert of_json[name] == getattr(cell, name)
            assert (row["missing"], row["partial"]) == (cell.missing, cell.partial)
            assert of_json["results"] == [record["made"]["key"] for record in cell.records]
            assert row["keys"] == ";".join(of_json["results"])
    cars, gain = rows["TPT", "Cars"], rows["PTA", "gain over CLIP"]
    assert cars["erratum"] == cells["TPT"]["Cars"]["erratum"] == "the row's mean needs another number"
    assert rows["± over seeds", "DTD"]["statistic"] == "deviation"
    assert (gain["ours"], gain["paper"]) == ("5.285", "5.19")
    dtd, mean, awaited = rows["PTA", "DTD"], rows["PTA", "Mean"], rows["TPT", "DTD"]
    assert json.loads(dtd["params"]) == {"h": 20.0, "anchor": "recursive"}
    assert (dtd["seeds"], json.loads(dtd["per_seed"])) == ("1 2", {"DTD": {"1": 70.0, "2": 70.24}})
    assert json.loads(mean["per_seed"]) == {"DTD": {"1": 70.0, "2": 70.24}, "Cars": {"1": 70.9, "2": 71.0}}
    assert len(mean["features"].split(";")) == 2
    assert (dtd["version"], dtd["hardware"]) == ("0.1.0+abcdef012345", "Some CPU, 2 thread(s), torch 2.9")
    assert awaited["keys"] == awaited["seeds"] == awaited["per_seed"] == ""


# -- LaTeX ----------------------------------------------------------------------------------------------------------


def unescaped(sign, text):
    return len(re.findall(rf"(?<!\\){re.escape(sign)}", text))


def assert_sound(text):
    """What TeX would stumble over: braces, mathematics, special signs and anything beyond Latin letters."""
    assert all(sign.isascii() or (sign.isalpha() and sign < "ſ") for sign in text)
    bare = text.replace(r"\\", "")
    assert unescaped("{", bare) == unescaped("}", bare)
    assert unescaped("$", bare) % 2 == 0
    outside = re.sub(r"(?<!\\)\$.*?(?<!\\)\$", "", bare)
    assert not unescaped("_", outside)
    assert not unescaped("#", outside)
    assert not re.search(r"(?<!\\)\^(?!\{)", outside)
    assert "~" not in re.sub(r"\\~", "", outside)


@pytest.mark.parametrize("table", [paper_table(), offline_table()])
def test_latex_is_sound(table):
    text = to_latex(table)
    assert_sound(text)
    assert [line for line in text.splitlines() if unescaped("%", line)] == ["\\resizebox{\\linewidth}{!}{%"]
    body = text[text.index("\\toprule") : text.index("\\bottomrule")]
    lines = [line for line in body.splitlines() if line.endswith("\\\\")]
    assert len(lines) == 1 + 5 + 2
    for line in lines:
        assert unescaped("&", line) == (0 if line.startswith("\\multicolumn{5}") else 4)
    assert "\\begin{tabular}{lrrrr}" in text
    begun, ended = (re.findall(rf"\\{word}\{{(\w+)\}}", text) for word in ("begin", "end"))
    assert begun == ended[::-1] == ["table", "tabular"]


def test_latex_has_every_cell():
    text = to_latex(paper_table())
    for said in (
        "PTA & \\textbf{70.12} {\\scriptsize (69.38, $+0.74$)} & \\textbf{70.95} {\\scriptsize (71.00, $-0.05$)} & ",
        "TPT & not yet {\\scriptsize (66.87)} & not yet {\\scriptsize (66.87$^{*}$)}",
        "50.00 {[}1 of 2{]} & $-10.50$ {\\scriptsize (paper: $+2.00$)} {[}1 of 2{]} \\\\",
        "{*} Training: TPT, Cars: printed 68.50, corrected to 66.87: the row's mean needs another number\\par",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("β ± γ", r"$\beta$ $\pm$ $\gamma$"),
        ("λ Λ Α ο", r"$\lambda$ $\Lambda$ $A$ $o$"),
        ("a–b—c--d", r"a\textendash{}b\textemdash{}c-{}-d"),
        ("[x] *", "{[}x{]} {*}"),
        ("Gödel, café, Å", "Gödel, café, Å"),
        ("日", r"\texttt{U+65E5}"),
        ("a\n\x00b", "a b"),
        (r"50 % & c_1 {#} $ ^ ~ \ ", r"50 \% \& c\_1 \{\#\} \$ \textasciicircum{} \textasciitilde{} \textbackslash{}"),
    ],
)
def test_latex_sets_signs_as_they_are(given, written):
    assert latex_text(given) == written


@given(st.text())
def test_any_text_is_sound_latex(anything):
    assert_sound(latex_text(anything))
