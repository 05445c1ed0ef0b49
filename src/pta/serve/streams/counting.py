"""How many samples an operation concerns: those that are in force before it or after it, but not both."""

from collections.abc import Mapping

from pta.serve.journal.journal import Journal
from pta.serve.streams.history import History

Spans = list[tuple[int, int]]


def samples_concerned(journal: Journal, stream: int, before: History, after: History) -> int:
    """How many samples come into force or go out of force."""
    last = journal.last(stream)[0]
    ours, theirs = before.spans(0, last), after.spans(0, last)
    unlearned = _unlearned(before), _unlearned(after)
    shared = {name: max(one.get(name, 0) for one in unlearned) for name in {**unlearned[0], **unlearned[1]}}
    alone = sum(_count(journal, stream, *one) for one in zip((ours, theirs), unlearned, strict=True))
    return alone - 2 * _count(journal, stream, _common(ours, theirs), shared)


def _unlearned(history: History) -> dict[str, int]:
    """The sources that are un-learned, and up to which row."""
    rows = [row for row in history.in_force if row.kind == "unlearn"]
    return {row.argument["source"]: row.sequence for row in rows}  # the last row of a source has the largest number


def _common(ours: Spans, theirs: Spans) -> Spans:
    pairs = ((max(a, c), min(b, d)) for a, b in ours for c, d in theirs)
    return [(first, last) for first, last in pairs if first <= last]


def _count(journal: Journal, stream: int, spans: Spans, unlearned: Mapping[str, int]) -> int:
    total = 0
    for first, last in spans:
        total += journal.count(stream, after=first - 1, until=last)
        for source, until in unlearned.items():
            total -= journal.count(stream, source=source, after=first - 1, until=min(last, until))
    return total
