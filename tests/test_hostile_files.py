"""Whatever a file holds, the answer is one line that names it. Whatever its name holds, the line stays one line."""

import csv
import io
import json
import os
import re
import sqlite3
import tarfile
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from photos import FASHION, write_classes, write_photos
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from pta.cli.messages import say
from pta.cli.options import read_classes
from pta.cli.output import _Description, plain
from pta.data.open import open_samples
from pta.data.prompts import build_classifier, load_descriptions, load_templates
from pta.door.files import read_json, understanding
from pta.door.safe_text import csv_cell, from_csv_cell, printable, to_json
from pta.errors import PtaError, UnreadableFile, naming
from pta.measure.contenders import read_contenders
from pta.measure.reproduce.declaration import load_experiment, parse_experiment
from pta.measure.result_store import ResultStore, result_key
from pta.models import EmbeddedEncoder
from pta.run.classifier import AnswerBatch
from pta.run.row_file import CsvRows, JsonLines, RowFile, path_as_written

ENCODER, PETS = EmbeddedEncoder.load(), ["cat", "dog"]


def test_what_is_wrong_with_a_file_is_said_once(tmp_path):
    (tmp_path / "cut.json").write_text('{"a": ')
    with pytest.raises(UnreadableFile, match=r"cut\.json is not JSON \(truncated or damaged\?\)"):
        read_json(tmp_path / "cut.json", "file")
    with pytest.raises(PtaError, match=r"^no such class$"), understanding(tmp_path, "file"):
        raise PtaError("no such class")


def deep(levels):
    return b"[" * levels + b"]" * levels


def split_of(path):
    """A copy of a dataset whose list is this file."""
    (path.parent / "dtd" / "images").mkdir(parents=True, exist_ok=True)
    (path.parent / "dtd" / "split_zhou_DescribableTextures.json").write_bytes(path.read_bytes())
    with naming(path.stem):
        return open_samples("dtd", root=path.parent)


READERS = {
    "classes.txt": lambda path: build_classifier(ENCODER, read_classes(str(path)), ["a {}."]),
    "templates.txt": lambda path: build_classifier(ENCODER, PETS, load_templates(str(path))),
    "templates.json": lambda path: build_classifier(ENCODER, PETS, load_templates(str(path))),
    "descriptions.json": lambda path: build_classifier(ENCODER, PETS, ["a {}."], descriptions=load_descriptions(path)),
    "list.csv": lambda path: open_samples(path, class_names=PETS).fingerprint,
    "shard.tar": lambda path: open_samples(path, class_names=PETS),
    "experiment.toml": lambda path: load_experiment(str(path)),
    "records.json": read_contenders,
    "split.json": split_of,
}
CONTENTS = {
    "nothing": b"",
    "a mark": b"\xef\xbb\xbf",
    "zeros": bytes(600),
    "noise": np.random.default_rng(1).bytes(3000),
    "no UTF-8": b"caf\xe9\n\xed\xa0\x80",
    "half a document": b'{"test": [["a.jpg", 0,',
    "another type": b"true",
    "an object": b'{"a": null, "a": 1}',
    "deep lists": deep(100_000),
    "lists at the limit": deep(900),
    "deep objects": b'{"a":' * 900 + b"1" + b"}" * 900,
    "deep rows": b'{"test": [' + deep(800) + b"]}",
    "deep tables": b"a = " + deep(5000),
    "infinity": b"[1e999, -1e999, NaN]",
    "digits": b"[" + b"9" * 5000 + b"]",
    "a number of TOML": b"a = " + b"9" * 5000,
    "half a character": b'{"cat": ["\\ud800"], "dog": ["a"]}',
    "half a template": b'["a {}.\\udfff"]',
    "half a path": b'{"test": [["\\ud800.jpg", 0, "banded"]]}',
    "a zero byte": b"path,label\na\0b.jpg,cat\n",
    "a long line": b"path\n" + b"x" * 300_000,
    "an endless quote": b'path\n"' + b"x" * 9000,
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("reader", READERS)
def test_any_content_is_read_or_refused_in_one_line_that_names_the_file(tmp_path, reader, content):
    path = tmp_path / reader
    path.write_bytes(CONTENTS[content])
    complaint = path.stem
    try:
        READERS[reader](path)
    except UnreadableFile as error:
        complaint = str(error)
    except PtaError:  # about the texts, whichever file they are from
        pass
    assert path.stem in complaint


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["folder", "pipe", "nothing", "loop"])
def test_what_is_no_file_is_refused_without_being_opened(tmp_path, reader, kind):
    path = tmp_path / reader
    made = {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "loop": lambda: path.symlink_to(path)}
    made.get(kind, lambda: None)()
    with pytest.raises(PtaError):
        READERS[reader](path) if reader != "split.json" else read_json(path, "split")


def records():
    """Two records as `pta eval --json` writes them, with the parts that are read."""
    one = {"dataset": "pets", "method": "pta", "params": {"h": 5}, "stream": {"kind": "shuffled"}, "n": 8, "samples": 8}
    return [{**one, "seed": seed, "accuracy": 100.0, "seen": "/w==", "right": "/w==", "labels": "x"} for seed in (1, 2)]


WRONG = [None, True, -1, 2**63, 10**4000, 1e300, float("inf"), float("nan"), "", "x", [], {}, [[]], [None], {"": []}]


@pytest.mark.parametrize("name", list(records()[0]))
def test_a_record_with_any_value_is_compared_or_refused(tmp_path, name):
    path = tmp_path / "records.json"
    path.write_text(json.dumps(records()))
    assert len(read_contenders(path)) == 1
    for value in WRONG:
        path.write_text(json.dumps([records()[0] | {name: value}, records()[1]]))
        with suppress(PtaError):
            read_contenders(path)


def nested_headers(kind, count=900):
    """An archive in which each header says that the name of the next one is long."""
    head = tarfile.TarInfo("x")
    head.type, head.size = kind, 512
    body = b"20 path=" + b"a" * 11 + b"\n" + bytes(512 - 20)
    return (head.tobuf(tarfile.GNU_FORMAT) + body) * count + bytes(1024)


def described_by(text, kind=tarfile.XHDTYPE):
    head, file = tarfile.TarInfo("x"), tarfile.TarInfo("a.jpg")
    head.type, head.size = kind, len(text)
    return head.tobuf() + text + bytes(-len(text) % 512) + file.tobuf() + bytes(1024)


@pytest.mark.parametrize(
    "content",
    [
        nested_headers(tarfile.GNUTYPE_LONGNAME),
        nested_headers(tarfile.XHDTYPE),
        described_by(b"1" * 60_000),  # would take minutes in an unrepaired tarfile
        described_by(b"x" * 100_000),
        described_by(b"30 size=99999999999999999999\n"),
        described_by(b"27 GNU.sparse.map=1,2,3,x\n"),
        described_by(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"),
    ],
)
def test_an_archive_with_hostile_headers_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(UnreadableFile, match=f"^{re.escape(str(tmp_path / 'a.tar'))}"):
        open_samples(tmp_path / "a.tar")


@pytest.mark.parametrize("seeds", [10**9, 2**63, -1, True, 1.5])
def test_an_experiment_of_endless_seeds_is_refused(seeds):
    row = f'label = "a"\nmethod = "pta"\nseeds = {str(seeds).lower()}\n'
    with pytest.raises(PtaError, match="experiment mine: "):
        parse_experiment("mine", f'title = "t"\n[[rows]]\n{row}[[columns]]\nname = "x"\n')


DAMAGED = ["7", "'[]'", "x'ff'", f"'{'[' * 9000}'", "'\"x\"'", "'{\"a\": ' || char(0) || '}'"]


def change_results(folder, command):
    with closing(sqlite3.connect(folder / "results.sqlite")) as connection, connection:
        connection.execute(command)


@pytest.mark.parametrize("record", DAMAGED)
def test_a_result_of_any_other_type_is_one_clear_line(tmp_path, record):
    store = ResultStore(tmp_path)
    store.put({"seed": 1}, {"value": 1})
    change_results(tmp_path, f"UPDATE results SET record = {record}")
    with pytest.raises(UnreadableFile, match=r"results\.sqlite cannot be used"):
        store.get(result_key({"seed": 1}))


def test_a_view_that_never_ends_is_not_looked_at(tmp_path):
    counting = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
    columns = "i AS key, i AS inputs, i AS record, i AS made"
    change_results(tmp_path, f"CREATE VIEW results AS {counting} {columns} FROM n")
    with pytest.raises(UnreadableFile, match="it belongs to another program, which keeps results"):
        ResultStore(tmp_path)


# -- names ------------------------------------------------------------------------------------------------------------

EVIL = "a\x1b[31m\r\n\u202e\u200b\x9b\u2028[red]\udce9"


def test_nothing_from_outside_controls_the_terminal(capsys):
    say(f"no such file: {EVIL}")
    assert capsys.readouterr().err == (
        "pta: no such file: a\\x1b[31m \\u202e\\u200b\\x9b [red]\\xe9\n"  # line breaks are blanks here
    )
    assert plain(EVIL) == "a\\x1b[31m\\r\\n\\u202e\\u200b\\x9b\\u2028\\[red]\\xe9"
    say("x" * 10**6)
    assert len(capsys.readouterr().err) < 2100


def test_a_name_in_a_progress_bar_is_no_markup():
    screen = io.StringIO()
    with Progress(_Description(), console=Console(file=screen, force_terminal=True, width=200)) as bar:
        bar.add_task(f"[/nothing] {EVIL}")
    assert f"[/nothing] {printable(EVIL)}" in screen.getvalue()


@given(st.text(st.characters(codec=None)))
def test_printable_text_is_left_alone_and_any_other_becomes_it(text):
    safe = printable(text)
    assert printable(safe) == safe
    assert safe.encode().decode() == safe
    assert not any(sign < " " or "\x7f" <= sign <= "\x9f" for sign in safe)
    assert printable("中文 ünï – 🐈") == "中文 ünï – 🐈"


@given(st.text(st.characters(codec=None)))
def test_json_is_valid_safe_and_exact_wherever_the_text_is_valid(text):
    line = to_json({"path": text})
    assert line.encode().decode() == line
    assert printable(line) == line
    exact = text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text)
    assert json.loads(line)["path"] == text or not exact


@given(st.text(st.characters(codec="utf-8")))
def test_no_text_in_a_csv_cell_is_a_formula_and_what_is_printable_is_read_back(text):
    cell = csv_cell(text)
    assert cell[:1] not in tuple("=@\t\r") and (cell[:1] not in tuple("+-") or float(cell) is not None)  # noqa: PT018
    assert from_csv_cell(cell) == printable(text)


def test_numbers_in_a_csv_stay_numbers():
    for number in (-1.5, 3, None, "-1.500000", "+2", "-1e-05", "-inf"):
        assert csv_cell(number) == number
    for formula in ("=1+1", "+1+1", "-1+1", "@SUM(A1)", "-x", "'=1", "=", "-"):
        assert csv_cell(formula) == f"'{formula}"


def test_rows_hold_no_formulas_and_no_control_characters():
    names = ("=cmd()", "b\x1b[0m", "-x")
    answers = AnswerBatch(torch.tensor([[0, 2, 0.5, 0.1, 1, 0.25, 0.1]], dtype=torch.float64), names)
    file = io.StringIO()
    CsvRows(file, 2).write(["@x\udce9.jpg"], answers)
    _, row = csv.reader(io.StringIO(file.getvalue()))
    assert row == ["'@x\\xe9.jpg", "'=cmd()", "0.5", "b\\x1b[0m", "0.25", "0.1", "'-x", "0.1"]
    file = io.StringIO()
    JsonLines(file).write(["@x\udce9\u202e.jpg"], answers)
    assert "\x1b" not in file.getvalue()
    assert json.loads(file.getvalue())["path"] == "@x\\xe9\u202e.jpg"


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_a_stream_that_goes_on_knows_its_rows_whatever_their_names(tmp_path, ending):
    names = [EVIL, "=1.jpg", "-x", "'@", "caf\udce9.jpg", 'a"b,c.jpg', "中文.jpg", "7"]
    file = RowFile(tmp_path / f"rows{ending}", 1)
    start = file.mark()
    file.write(names, AnswerBatch(torch.tensor([[0, 0.5, 1, 0.5, 0.1]] * len(names)), ("x", "y")))
    file.close()
    assert start.keys_after(tmp_path / f"rows{ending}") == [path_as_written(name, ending) for name in names]


def test_a_list_that_predict_wrote_can_be_read_again(tmp_path):
    names = ["=a.png", "'=b.png", "-c.png", "d.png"]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        CsvRows(file, 1).write(names, AnswerBatch(torch.tensor([[0, 0.5, 1, 0.5, 0.1]] * len(names)), ("+x", "y")))
    for name in names:
        Image.new("L", (4, 4)).save(tmp_path / name)
    found = open_samples(tmp_path / "rows.csv")
    assert [sample.key for sample in found.samples] == names
    assert all(sample.read() for sample in found.samples)
    assert found.class_names == ("+x",)


def test_file_names_that_are_not_utf8_are_read_and_written_as_valid_text(pta, tmp_path):
    ((photo, _),) = write_photos(tmp_path / "photos", 1)
    (tmp_path / "one").mkdir()
    name = os.fsencode(tmp_path / "one") + b"/caf\xe9\x1b[31m.jpg"
    photo.rename(os.fsdecode(name))
    fixed = ("--classes", write_classes(tmp_path / "classes.txt"), "--model", "embedded", "--device", "cpu")
    for given_as in ("one", "-"):
        done = pta("predict", given_as, *fixed, "--out", f"of {given_as}.jsonl", stdin=name + b"\n")
        assert done.returncode == 0, done.stderr
        content = (tmp_path / f"of {given_as}.jsonl").read_bytes()
        assert b"\x1b" not in content
        row = json.loads(content.decode("utf-8", errors="strict"))
        assert row["path"].endswith("one/caf\\xe9\x1b[31m.jpg")
        assert row["label"] in FASHION.class_names
    Path(os.fsdecode(name)).unlink()
    refused = pta("predict", "-", *fixed, stdin=name + b"\n")
    assert refused.returncode == 1
    assert "one/caf\\xe9\\x1b[31m.jpg cannot be read: no such file" in refused.stderr


def test_a_feature_file_of_any_name_can_be_evaluated_swept_and_compared(pta, pets, tmp_path):
    path = tmp_path / "=[bold]\x1b[2J\udce9.npz"
    path.write_bytes(pets.read_bytes())
    given_as = ("--features", path)
    shown = pta("eval", *given_as, "--method", "pta", "--json", "a.json")
    swept = pta("sweep", *given_as, "--set", "pta.h=5,10", "--csv", "a.csv", "--plot", "a.svg", "--results", "store")
    compared = pta("compare", "a.json", "a.json")
    for done in (shown, swept, compared):
        assert done.returncode == 0, done.stderr
        assert "\x1b[2J" not in done.stdout + done.stderr
    assert json.loads((tmp_path / "a.json").read_text())[0]["dataset"] == "=[bold]\x1b[2J\\xe9"
    assert (tmp_path / "a.csv").read_text().splitlines()[1].startswith("'=[bold]\\x1b[2J\\xe9,pta,5,1,")


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory.\nAnd a page of advice")])
def test_running_out_of_memory_is_one_line(pta, monkeypatch, pets, error):
    def exhausted(*given):
        raise error

    monkeypatch.setattr("pta.cli.method_choice.load_features", exhausted)
    done = pta("eval", "--features", pets)
    assert (done.returncode, done.stderr) == (1, "pta: there is not enough memory for this\n")
