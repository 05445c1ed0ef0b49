"""Rows are formatted a batch at a time and written by a thread, with the same result as one by one."""

import csv
import io
import json
import threading

import pytest
import torch

from pta.door.safe_text import csv_cell, to_json
from pta.errors import MachineFailure
from pta.run.classifier import AnswerBatch, answer_numbers
from pta.run.row_file import CsvRows, JsonLines, RowFile, columns
from pta.run.saved_stream import RowThread

NAMES = ("cat", "=dog", 'a "quoted", name', "caf\udce9", "中文\u202e", "cat")
PATHS = ["a.jpg", "-1.jpg", 'q"x,y.jpg', "caf\udce9/\x1b.jpg", "中.jpg", "7"]


def some_answers(top, reject_below=None):
    """Answers whose probabilities are large, tiny, half-way between two roundings, or not numbers."""
    logits = torch.randn(6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 8
    probabilities = logits.softmax(dim=1)
    probabilities[0, :], probabilities[1, :], probabilities[2, :] = 0.0000005, 0.1234565, torch.nan
    return AnswerBatch(answer_numbers(logits, probabilities, -logits, top), NAMES, reject_below)


def row_by_row(path, answer):
    """The columns of one row and their values."""
    row = [path, answer.label, answer.probability, answer.zero_shot_label, answer.zero_shot_probability, answer.entropy]
    return [round(one, 6) if isinstance(one, float) else one for one in row]


@pytest.mark.parametrize("top", [1, 3])
def test_a_batch_of_json_lines_is_what_json_makes_of_each_row(top):
    answers, file = some_answers(top), io.StringIO()
    JsonLines(file).write(PATHS, answers)
    expected = ""
    for path, answer in zip(PATHS, answers, strict=True):
        row = dict(zip(columns(1), row_by_row(path, answer), strict=True))
        if top > 1:
            row["top"] = [{"label": label, "probability": round(value, 6)} for label, value in answer.top]
        expected += to_json(row) + "\n"
    assert file.getvalue() == expected
    assert expected == "".join(to_json(json.loads(line)) + "\n" for line in expected.splitlines())


@pytest.mark.parametrize("top", [1, 3])
def test_where_answers_may_be_rejected_each_row_ends_with_whether_it_is(top):
    answers, json_file, csv_file = some_answers(top, 0.9), io.StringIO(), io.StringIO()
    expected = [probability < 0.9 for probability in answers.columns.probabilities[0]]
    assert {True, False} == set(expected)
    JsonLines(json_file).write(PATHS, answers)
    CsvRows(csv_file, top, ["rejected"]).write(PATHS, answers)
    assert [json.loads(line)["rejected"] for line in json_file.getvalue().splitlines()] == expected
    table = list(csv.DictReader(io.StringIO(csv_file.getvalue())))
    assert [row["rejected"] for row in table] == [to_json(one) for one in expected]
    assert [answer.rejected for answer in answers] == expected
    assert not any(answer.rejected for answer in some_answers(top))


@pytest.mark.parametrize("top", [1, 3])
def test_a_batch_of_csv_rows_is_what_csv_makes_of_each_row(top):
    answers, file, expected = some_answers(top), io.StringIO(), io.StringIO()
    CsvRows(file, top).write(PATHS, answers)
    writer = csv.writer(expected, lineterminator="\n")
    writer.writerow(columns(top))
    for path, answer in zip(PATHS, answers, strict=True):
        more = [cell for label, value in answer.top[1:] for cell in (label, round(value, 6))]
        writer.writerow(map(csv_cell, [*row_by_row(path, answer), *more]))
    assert file.getvalue() == expected.getvalue()


def test_answers_can_be_looked_at_one_by_one_and_counted():
    answers = some_answers(2)
    assert len(answers) == len(list(answers)) == 6
    assert answers.columns.changed == sum(answer.changed for answer in answers)
    assert answers[1:3] == [answers[1], answers[2]]
    assert answers.arrived


class Sink:
    """Rows in a list; it fails at one of them, and waits where it is told to."""

    def __init__(self, fails_at=None, error=None):
        self.paths, self.fails_at, self.error, self.may_go_on = [], fails_at, error, threading.Event()

    def write(self, paths, answers):
        self.may_go_on.wait()
        self.paths += paths
        if self.fails_at in paths:
            raise self.error

    def finish(self):
        self.paths.append("end")

    def mark(self):
        return list(self.paths)


NOTHING = AnswerBatch(torch.empty(0, 5), ())


def test_rows_are_written_in_order_and_all_of_them_before_a_mark():
    sink = Sink()
    thread = RowThread(sink)
    thread.write(["a"], NOTHING)
    thread.write(["b", "c"], NOTHING)
    assert sink.paths == []
    sink.may_go_on.set()
    assert thread.mark() == ["a", "b", "c"]
    thread.finish()
    assert sink.paths[-1] == "end"
    thread.write(["d"], NOTHING)
    thread.close()
    assert sink.paths[-1] == "d"


def test_rows_that_cannot_be_written_stop_the_stream_and_are_in_the_mark():
    sink = Sink("b", MachineFailure("the disk is full"))
    thread = RowThread(sink)
    for path in "abc":
        thread.write([path], NOTHING)
    sink.may_go_on.set()
    assert thread.mark() == ["a", "b", "c"]
    for call in (thread.finish, lambda: thread.write(["d"], NOTHING)):
        with pytest.raises(MachineFailure, match="the disk is full"):
            call()
    assert thread.mark() == ["a", "b", "c", "d"]
    thread.close()


def test_a_programming_error_in_the_thread_leaves_no_mark():
    sink = Sink("a", ZeroDivisionError())
    sink.may_go_on.set()
    thread = RowThread(sink)
    thread.write(["a"], NOTHING)
    with pytest.raises(ZeroDivisionError):
        thread.mark()
    thread.close()


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_after_a_failure_rows_wait_for_their_turn(tmp_path, ending, monkeypatch):
    answers = AnswerBatch(torch.tensor([[0, 0.5, 1, 0.5, 0.1]]), ("x", "y"))
    whole, broken = (RowFile(tmp_path / f"{name}{ending}", 1) for name in ("whole", "broken"))
    for path in "abc":
        whole.write([path], answers)
    whole.close()
    broken.write(["a"], answers)
    with monkeypatch.context() as patched:
        patched.setattr(broken, "_append", lambda text: (_ for _ in ()).throw(OSError(28, "no space left on device")))
        with pytest.raises(MachineFailure, match="rows cannot be written"):
            broken.write(["b"], answers)
    broken.write(["c"], answers)  # although the disk has room again
    mark = broken.mark()
    broken.close()
    RowFile(tmp_path / f"broken{ending}", 1, mark).close()
    assert (tmp_path / f"broken{ending}").read_bytes() == (tmp_path / f"whole{ending}").read_bytes()
