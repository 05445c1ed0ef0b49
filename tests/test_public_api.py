"""The public names change only together with the changelog."""

import re
from difflib import unified_diff

import pytest
from public_api import CURRENT, ROOT, newest_section, public_api, released, unnamed

import pta as library
from pta.door.files import load_tensors, save_tensors
from pta.errors import StateMismatch

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_list_of_public_names_is_what_there_is():
    kept = CURRENT.read_text(encoding="utf-8").splitlines()
    changed = [line for line in unified_diff(kept, public_api(), lineterm="", n=0) if line[:1] in "+-"][2:]
    advice = "run `python tests/public_api.py`, and name each of them in the newest section of CHANGELOG.md"
    assert not changed, "\n".join(["public names have changed:", *changed, advice])


def test_what_changed_since_the_last_release_is_named_in_the_changelog():
    before, now = released(), CURRENT.read_text(encoding="utf-8").splitlines()
    lacking = unnamed(before, now, newest_section(CHANGELOG)) if before else []
    assert not lacking, f"name them as code in the newest section of CHANGELOG.md: {lacking}"


def test_a_name_that_came_went_or_changed_must_stand_in_the_newest_section_as_code():
    before = ["python pta.Old(a)", "python pta.Kept.call(a, b=1)", "command pta predict --top = 1", "format state 4"]
    now = ["python pta.New(a)", "python pta.Kept.call(a, b=2)", "command pta predict --top = 2", "format state 5"]
    changelog = "# Changelog\n\n## 0.2.0\n\n{}\n\n## 0.1.0\n\n`New` `Old` `call` `--top` `state`\n"
    assert unnamed(before, now, newest_section(changelog.format("New things."))) == [
        "--top",
        "New",
        "Old",
        "call",
        "state",
    ]
    said = "`pta.New` is the former `Old`; `pta predict --top 2`; `Kept.call(a, b=2)`; a `state` of format 5"
    assert unnamed(before, now, newest_section(changelog.format(said))) == []
    assert unnamed(now, now, "") == []


def test_the_list_has_every_kind_of_name():
    kinds = {line.split()[0] for line in public_api()}
    expected = {"column", "command", "entry", "exit", "format", "method", "metric", "python", "route", "variable"}
    assert kinds == expected


def test_names_and_files_of_another_version_are_answered_in_one_line(pta, tmp_path):
    with pytest.raises(AttributeError, match="module 'pta' has no attribute 'Clasifier'"):
        library.Clasifier  # noqa: B018
    done = pta("predict", "photos", "--tops", "3")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert re.search(r"No such option:? .?--tops.*--top\b", done.stderr)  # the words are those of the installed typer
    path = tmp_path / "shop.safetensors"
    library.PTA(library.ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])).save(path)
    tensors, about = load_tensors(path, "state")
    save_tensors(path, tensors, {**about, "version": about["version"] + 1})
    with pytest.raises(StateMismatch, match="has state version 5; this version of pta reads 4"):
        library.load_adapter(path)
