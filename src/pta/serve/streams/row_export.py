"""Rows of a stream for people: each learned sample that is there, what it was answered and what it was labelled."""

from collections.abc import Iterator, Sequence
from typing import Any

from pta.data.label_file import label_texts
from pta.serve.journal.rows import AnsweredRows, Answers
from pta.serve.requests import Refused
from pta.serve.streams.history import History
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.pending import LastAnswers

MOST_ROWS = 4096
"""In one answer."""


def rows_after(
    stream: LiveStream, last_answers: LastAnswers, class_names: Sequence[str], after: int, limit: int
) -> dict[str, Any]:
    """Up to `limit` rows after a sequence number, in order.

    `next` is the sequence number to go on after, None at the end. `left_out` counts rows whose answers a killed process
    did not write.
    """
    if (past := stream.past) is None:
        raise Refused("rows are in the journal, and this service was started with --no-journal", 409)
    rows: list[dict[str, Any]] = []
    left_out = 0
    unwritten = last_answers.of_stream(stream.number)  # before the journal is read, because they move there
    for batch in past.journal.answered(past.number, after):
        answers = unwritten.get(batch.first) if batch.answers is None else batch.answers
        if answers is not None:
            rows += [row for row in _rows(batch, answers, stream.history, class_names) if row["sequence"] > after]
        elif batch.first > stream.recovered:
            break  # it is being answered
        else:
            left_out += int((batch.sequences > after).sum())
        if len(rows) >= limit:
            return {"rows": rows[:limit], "next": rows[limit - 1]["sequence"], "left_out": left_out}
    return {"rows": rows, "next": None, "left_out": left_out}


def _rows(batch: AnsweredRows, answers: Answers, history: History, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    given = answers[batch.sequences - batch.first]
    labels = label_texts(history.labels.find(batch.sequences), names)
    was_zero_shot = history.was_zero_shot(batch.sequences).tolist()
    for number, sequence in enumerate(batch.sequences.tolist()):
        one, of = given[number], "zero_shot_" if was_zero_shot[number] else ""
        yield {
            "sequence": sequence,
            "place": batch.places[number],
            "time": batch.time,
            "label": names[one[f"{of}label"]],
            "probability": float(one[f"{of}probability"]),
            "zero_shot_label": names[one["zero_shot_label"]],
            "zero_shot_probability": float(one["zero_shot_probability"]),
            "adapted_label": names[one["label"]],
            "entropy": float(one[f"{of}entropy"]),
            "source": batch.sources[number],
            "learned_label": labels[number],
            "id_hash": batch.id_hashes[number].hex(),
        }
