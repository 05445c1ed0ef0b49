"""What the command says, how much of it, and how it fits into a terminal."""

import re
import subprocess
import sys

import numpy as np
import pytest
from photos import FASHION
from PIL import Image
from rich.table import Table
from tables import paper_table

from pta.cli.fitting_table import print_table
from pta.cli.messages import say
from pta.cli.reproduce import show


@pytest.fixture
def photos(tmp_path):
    """A folder with three pictures, one of which is none."""
    (tmp_path / "photos").mkdir()
    for number in range(2):
        Image.fromarray(FASHION.images[number]).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos" / "broken.png").touch()
    return "photos"


@pytest.fixture
def predict(pta, photos):
    """`pta predict` over the pictures."""
    names = ",".join(FASHION.class_names)
    return lambda *more: pta("predict", photos, "--classes", names, "--on-error", "skip", "--model", "embedded", *more)


# -- how much is said --------------------------------------------------------------------------------------------------


def test_quiet_leaves_out_all_but_what_goes_wrong(predict):
    usual, quiet = predict(), predict("-q")
    assert quiet.stdout == usual.stdout
    assert [line.split(":")[1] for line in quiet.stderr.splitlines()] == [" skipped"]
    assert "pta changed" in usual.stderr
    assert predict("-q", "--dtype", "fp16").stderr.count("\n") == 1


def test_verbose_says_which_model_and_state_are_used(predict):
    predict("--state", "state.safetensors")
    said = predict("--state", "state.safetensors", "-v").stderr
    assert re.search("model embedded: embedded, cpu, float32, torch, 128 dimensions", said)
    assert "state.safetensors: wpta has learned from 2 samples" in said


def test_the_log_file_has_everything_with_the_time_and_is_added_to(predict, tmp_path):
    for _ in range(2):
        predict("-q", "--log-file", "log.txt")
    predict("--log-file", "log.txt", "--top", "0")
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) ", line) for line in lines)
    kinds = ["DEBUG pta 0", "DEBUG model", "WARNING skipped", "INFO images: 2"]
    assert [[kind in line for kind in kinds].index(True) for line in lines[:8]] == [0, 1, 2, 3] * 2
    assert "ERROR Invalid value for '--top'" in lines[-1]


def test_a_wrong_choice_names_the_choices_and_no_class_of_the_parser(predict):
    said = predict("--runtime", "onxx").stderr
    assert said.startswith("pta: Invalid value for '--runtime': 'onxx' is not one of 'torch', 'onnx'")


def test_a_log_ends_with_its_command(predict, tmp_path):
    predict("--log-file", "log.txt")
    before = (tmp_path / "log.txt").read_text()
    say("something else")
    assert (tmp_path / "log.txt").read_text() == before


# -- names and completion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("pta predict --log-", "--log-file"),
        pytest.param("pta pre", "predict", marks=pytest.mark.extensive),
        pytest.param("pta datasets check --ver", "--verbose", marks=pytest.mark.extensive),
    ],
)
def test_a_shell_completes_commands_and_options(words, found, tmp_path):
    start = "import sys; sys.argv = ['pta']; from pta.cli import main; main()"
    shell = {"_PTA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    path = {"PYTHONPATH": ":".join(filter(None, sys.path)), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, env=shell | path)
    assert (done.returncode, done.stdout.split()) == (0, [found])


def test_the_environment_names_the_model_unless_the_command_does(predict, pta, photos, monkeypatch):
    monkeypatch.setenv("PTA_MODEL", "embeded")
    assert predict().returncode == 0
    assert "did you mean 'embedded'" in pta("predict", photos, "--classes", "a,b").stderr
    assert "did you mean 'embedded'" in pta("extract", photos, "--classes", "a,b", "--out", "x.safetensors").stderr


def test_the_packages_are_there_without_an_import_of_their_own():
    names = ("core", "data", "models", "run")
    lazily = "import sys, pta; assert 'torch' not in sys.modules; "
    lazily += "; ".join(f"assert pta.{name}.__name__ == 'pta.{name}'" for name in names)
    subprocess.run([sys.executable, "-c", lazily], check=True, env={"PYTHONPATH": ":".join(filter(None, sys.path))})


# -- files that exist --------------------------------------------------------------------------------------------------


def test_results_that_exist_are_overwritten_only_when_asked(pta, predict, pets, tmp_path):
    evaluate = ("eval", "--features", pets, "--method", "clip")
    sweep = ("sweep", "--features", pets, "--set", "pta.h=5")
    for command, file in {
        (*evaluate, "--json", "records.json"): "records.json",
        (*evaluate, "--predictions", "answers"): "answers/clip-1.csv",
        (*sweep, "--json", "swept.json"): "swept.json",
        (*sweep, "--csv", "swept.csv"): "swept.csv",
    }.items():
        assert pta(*command).returncode == 0
        made = (tmp_path / file).read_text()
        (tmp_path / file).write_text("of the user's")
        refused = pta(*command)
        assert refused.returncode == 2
        assert f"{file} exists; --replace overwrites it" in refused.stderr
        assert (tmp_path / file).read_text() == "of the user's"
        assert pta(*command, "--replace").returncode == 0
        assert (tmp_path / file).read_text().splitlines()[0] == made.splitlines()[0]
    for _ in range(2):
        assert predict("--out", "rows.csv", "--replace").returncode == 0
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3


# -- tables ------------------------------------------------------------------------------------------------------------

LONG = "a-feature-file-with-a-very-long-name-of-sixty-letters-or-more-in-it"


WHOLE = re.compile(r"(?<![\w.-])[A-Za-z][\w-]{0,23}(?![\w-])|\d+\.\d+")  # a name that fits into a column, or a number


def rows(text):
    """The lines of tables."""
    return [line for line in text.splitlines() if line[:1] in ("┃", "│")]


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def own(pets, tmp_path):
    """A feature file with a long name and long names of classes."""
    with np.load(pets) as file:
        arrays = dict(file)
    arrays["classnames"] = np.array([f"{name}, a class with a long name of its own" for name in arrays["classnames"]])
    np.savez(tmp_path / f"{LONG}.npz", **arrays)
    return tmp_path / f"{LONG}.npz"


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    "command",
    [
        "methods",
        "methods combined point-cache",
        "datasets",
        "reproduce --list",
        "eval --features OWN --method adapt-transductive --method pta --seed 1 --seed 2",
        "sweep --features OWN --set pta.h=1,5.25,20,50 --set pta.w=0.001,0.01,0.0125,0.1 --seed 1 --seed 2",
        "compare records.json --a clip --b pta:h=20.123456",
    ],
)
def test_in_80_columns_nothing_is_cut(pta, own, command, monkeypatch):
    made = pta("eval", "--features", own, "--set", "pta.h=20.123456", "--json", "records.json")
    words = [str(own) if word == "OWN" else word for word in command.split()]
    narrow = pta(*words)
    monkeypatch.setenv("COLUMNS", "400")
    wide = pta(*words)
    assert (made.returncode, narrow.returncode, wide.returncode) == (0, 0, 0)
    assert max(map(len, rows(narrow.stdout))) <= 80
    wanted, shown = (set(WHOLE.findall("\n".join(rows(done.stdout)))) for done in (wide, narrow))
    assert len(wanted) > 5
    assert not wanted - shown


@pytest.mark.usefixtures("narrow")
def test_in_80_columns_every_cell_of_a_paper_table_is_there(capsys):
    table = paper_table()
    show(table)
    shown = capsys.readouterr().out
    assert max(map(len, rows(shown))) <= 80
    assert all(text in shown for cell in table.cells for text in cell.texts)


@pytest.mark.usefixtures("narrow")
def test_names_go_on_in_the_next_line_and_numbers_stay_whole(capsys):
    table = Table("name", "method")
    for heading in ("accuracy", "gain over zero-shot", "worst class", "samples per second", "state in bytes"):
        table.add_column(heading, justify="right")
    table.add_row("n" * 70, "adapt-transductive", "61.25 ± 0.52", "+12.345678", "0.00", "12,345,678", "1,234,567,890")
    print_table(table, keys=2)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert all(number in shown for number in ("61.25 ± 0.52", "+12.345678", "12,345,678", "1,234,567,890"))
    assert shown.count("n" * 24) >= 2
    assert shown.count("adapt-transductive") == shown.count("┏━")
