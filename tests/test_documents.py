"""The documents show the committed results, and these say which code measured them."""

import csv
import json
import re
import runpy

import pytest
from fill_tables import FOLDERS, MARKED, PAGES, ROOT, filled, one, rows
from result_file import write

RESULTS, REPRODUCED = FOLDERS
TABLE = re.compile(r"^(?:\|.*\n)+", flags=re.MULTILINE)
MEASURED = re.compile(r"\| *\**[−+-]?\d[\d,]*(?:\.\d|\d *\|)")  # a cell with decimals, or a number of several digits
VERSION = re.compile(r"\d+\.\d+\.\d+\+[0-9a-f]{12}(, commit [0-9a-f]{7})?")


def shown(page, mark):
    """What a page shows at the mark that begins so."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return next(found[4] for found in MARKED.finditer(text) if found[3].startswith(mark))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_of_the_results_is_what_they_hold(page):
    text = page.read_text(encoding="utf-8")
    assert filled(text) == text, "run make tables"
    assert not re.search(r"^\s*<!-- n:", text, flags=re.MULTILINE), "a line that begins with a comment is no paragraph"


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "parameters"], ids=lambda page: page.stem)
def test_a_table_of_numbers_is_made_from_results(page):
    by_hand = TABLE.findall(MARKED.sub("", page.read_text(encoding="utf-8")))
    assert not [table for table in by_hand if MEASURED.search(table)]


def test_calibration_errors_keep_the_digits_of_the_results():
    """A number that was rounded to two digits is not rounded again to one: 13.253 would become 13.25, then 13.2."""
    for mark, file, columns in (
        ("prior prior=none by=method,stream", "prior", ("fixed_error", "matched_error")),
        ("calibration by=method", "calibration", ("accuracy", "raw_calibration_error", "calibration_error")),
    ):
        held = {float(row[column]) for row in rows(file) for column in columns}
        assert {float(number) for number in re.findall(r"\d+\.\d+", shown("methods", mark))} <= held


def test_swapped_rows_and_changed_digits_are_put_right():
    text = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    _, _, *lines = TABLE.findall(shown("findings", "findings-switches"))[0].splitlines(keepends=True)
    changed = text.replace("".join(lines), "".join(reversed(lines))).replace("94.17", "94.71")
    assert changed != text
    assert filled(changed) == text


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("findings-switches by=setting\n| {accuracy} |\nreleased", "one value is needed"),
        ("findings-switches by=setting\n| {accuracy[dataset=cars]} |\nreleased", "empty"),
        ("findings-switches by=setting\n| {acuracy[dataset=caltech*]} |\nreleased", "empty"),
        ("findings-switches by=setting\n| {accuracy[dataset=caltech*]} |\nrelased", "no row"),
    ],
)
def test_a_mark_that_finds_several_values_or_none_is_an_error(mark, said):
    name, lines = mark.split("\n", 1)
    with pytest.raises(ValueError, match=said):
        filled(f"<!-- table: {name}\n| accuracy |\n{lines}\n-->\n<!-- end -->")


def test_clouds_without_a_gain_are_all_in_their_table():
    tables = ("table12", "table13", "table3", "table14", "table15")
    sections = {"ModelNet-C": "procedural", "Furniture (ours)": "furniture"}
    named = {
        f"| {source}, severity {severity} | {row['dataset']} |"
        for severity, table in enumerate(tables)
        for row in rows(table)
        if row["row"] == "ULIP" and row["metric"] == "accuracy" and (source := sections.get(row["section"]))
        for pta in [one(table, row="PTA", **{key: row[key] for key in ("section", "dataset", "metric")})]
        if float(pta["ours"]) <= float(row["ours"])
    }
    lines = shown("findings", " ".join(tables)).splitlines()[3:]
    assert {re.match(r"(\|[^|]*){2}\|", line)[0] for line in lines} == named


def test_every_result_is_on_some_page_and_says_which_code_made_it():
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for path in RESULTS.glob("*.csv"):
        assert path.name in pages
        with path.open(newline="", encoding="utf-8") as file:
            assert all(VERSION.fullmatch(row["version"]) for row in csv.DictReader(file)), path
    for path in REPRODUCED.glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            measured = [row for row in csv.DictReader(file) if row["seeds"]]
            assert all(VERSION.fullmatch(one) for row in measured for one in row["version"].split(";")), path


@pytest.mark.parametrize("page", sorted(REPRODUCED.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_of_results_has_a_title_and_shows_its_figure(page):
    title, *lines = page.read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    assert not any(line.startswith("# ") for line in lines)
    assert (f"![{title.removeprefix('# ')}]({page.stem}.svg)" in lines) == page.with_suffix(".svg").exists()


def test_the_figure_of_speeds_is_drawn_from_the_results():
    figure = (ROOT / "docs" / "images" / "speed.svg").read_text(encoding="utf-8")
    compiled = [row for row in rows("gpu") if row["way"] == "ours" and row["model"].startswith("ViT")]
    shares = [row for row in compiled + rows("gpu-methods") if row["classes"] == "1000" and row["batch"] != "32"]
    drawn = re.findall(r">(\w+ \d+%)<", figure.upper())
    assert sorted(drawn) == sorted(f"{row['method'].upper()} {float(row['of_clip']):.0%}" for row in shares)


def test_a_result_is_written_with_its_version_and_kept_if_nothing_was_measured(tmp_path, capsys):
    path = tmp_path / "speed.csv"
    write(path, iter([{"method": "pta", "us": 3}]))
    write(path, [])
    head, row = path.read_text(encoding="utf-8").splitlines()
    assert head == "method,us,version"
    assert VERSION.fullmatch(row.removeprefix("pta,3,"))


def test_the_demo_of_the_readme_is_the_one_that_was_measured():
    row = one("demo", shift="gaussian_noise", severity="3", seed="1")
    gained = rf"PTA gained {float(row['gain']):.2f} points over zero-shot \(95 %: [\d.]+ to [\d.]+\): {row['pta']} % of"
    said = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"{gained} 2,000 images right, against {row['zero_shot']} %", said)


def test_the_demo_of_clouds_in_its_document_is_what_the_table_measured():
    column = {"section": "Furniture (ours)", "dataset": "Jitter", "metric": "accuracy"}
    measured = (json.loads(one("table3", row=row, **column)["per_seed"])["Jitter"]["1"] for row in ("PTA", "ULIP"))
    right = "{:.2f} % of 179 clouds right, against {:.2f} %".format(*measured)
    assert right in (ROOT / "docs" / "points.md").read_text(encoding="utf-8")


def test_the_demo_says_the_truth_about_other_methods():
    """Its report: PTA is ahead of five methods on real features of three datasets."""
    for dataset in ("caltech101", "stanford", "ucf101"):
        accuracies = {
            row["method"]: float(row["accuracy"]) for row in rows("real-features") if dataset in row["dataset"]
        }
        assert all(accuracies["pta"] > accuracies[other] for other in ("tda", "sca", "onzeta", "bca", "adapt"))


def test_the_manifest_in_the_document_is_the_file():
    manifest = (ROOT / "deploy" / "serve.yaml").read_text(encoding="utf-8")
    assert f"```yaml\n{manifest}```" in (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")


def test_the_page_of_parameters_is_what_the_methods_declare():
    script = runpy.run_path(str(ROOT / "docs" / "make_parameters.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"]()
