"""What is shown of a stream, computed when somebody asks."""

from typing import Any

import torch

from pta.methods import Adapter
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.served_model import rule_of

_MOST_ROWS = 200
_MOST_SOURCES = 50


def brief_summary(stream: LiveStream) -> dict[str, Any]:
    """A line in a list of streams."""
    with stream.lock:
        state = stream.state
        return {
            "name": stream.name,
            "sequence": state.sequence,
            "time": stream.time,
            "position": state.adapter.position,
            "frozen": stream.frozen,
            "answered": stream.statistics.answered,
        }


def full_summary(stream: LiveStream, read_only: str | None) -> dict[str, Any]:
    """Everything about a stream; counts of answers are since the service started, touches those in force."""
    brief = brief_summary(stream)
    with stream.lock:
        counts = stream.statistics.summary()
        answers, touches = list(stream.statistics.answers), stream.state.touches.tolist()
        adapter = stream.state.adapter
        cosines, has_touches = _cosines(adapter), rule_of(adapter) is not None
    names = adapter.classifier.class_names
    rows = zip(names, touches, answers, cosines, strict=True)
    sources, oldest = {}, (brief["sequence"], brief["time"])
    if (past := stream.past) is not None:
        sources, oldest = past.journal.sources(past.number), past.journal.oldest(past.number)
    largest = sorted(sources.items(), key=lambda one: -one[1])[:_MOST_SOURCES]
    return {
        **brief,
        **counts,
        "read_only": stream.failed or read_only,
        "classes": [
            {"name": name, "touches": count if has_touches else None, "answers": answered, "cosine": cosine}
            for name, count, answered, cosine in rows
        ],
        "sources": [{"source": source, "samples": samples} for source, samples in largest],
        "timeline": _timeline(stream),
        "oldest": dict(zip(("sequence", "time"), oldest, strict=True)),
    }


def _timeline(stream: LiveStream) -> list[dict[str, Any]]:
    """Operations and snapshots, the newest last."""
    history = stream.history
    in_force = {row.sequence for row in history.in_force}
    rows: list[dict[str, Any]] = [
        {
            "sequence": row.sequence,
            "time": row.time,
            "kind": row.kind,
            "argument": {name: value for name, value in row.argument.items() if name != "samples"},
            "samples": row.argument.get("samples"),
            "in_force": row.sequence in in_force,
        }
        for row in stream.operations[-_MOST_ROWS:]
    ]
    for one in stream.past.snapshots.saved[-_MOST_ROWS:] if stream.past else ():
        agrees = one.fingerprint == history.fingerprint(one.sequence)
        kind: dict[str, Any] = {"kind": "snapshot", "argument": {}, "samples": None, "in_force": agrees}
        rows.append({"sequence": one.sequence, "time": one.time, **kind})
    return sorted(rows, key=lambda row: row["sequence"])[-_MOST_ROWS:]


def _cosines(adapter: Adapter) -> list[float | None]:
    """Of each class's prototype and its text, for a method that keeps anchored prototypes."""
    prototypes, anchors = getattr(adapter, "anchored", None), adapter.classifier.anchors
    if prototypes is None or prototypes.shape != anchors.shape:
        return [None] * len(anchors)
    return torch.cosine_similarity(prototypes.to(anchors.dtype), anchors, dim=1).tolist()
