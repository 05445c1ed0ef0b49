"""Merging what was learned separately: segments of PTA in order, and the sums of WPTA."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from pta.door.files import load_tensors
from pta.engines.segments.segment import Segment, compose
from pta.errors import InvalidParameter, StateMismatch, UnreadableFile
from pta.methods.adapter import Adapter
from pta.methods.pta import PTA
from pta.methods.registry import load_adapter
from pta.methods.wpta import WPTA

Part = Adapter | Segment


class Merged(NamedTuple):
    """One part in the place of several."""

    part: Part
    exact: bool  # it is what the streams one after the other would have given, up to rounding
    note: str  # what is exact, and what is not


def load_part(path: str | Path) -> Part:
    """A state or a segment from its file."""
    try:
        load_tensors(path, kind="segment", only=[])
    except UnreadableFile:
        return load_adapter(path)
    return Segment.load(path)


def merge(parts: Sequence[Part]) -> Merged:
    """Merge, in the order of the stream, segments, or a state of PTA and the segments after it, or states of WPTA.

    The parts do not change.
    """
    if len(parts) < 2:
        raise InvalidParameter("merge takes a list of two or more states (adapters) and segments")
    first, *later = parts
    segments = [part for part in parts if isinstance(part, Segment)]
    if isinstance(first, Segment):
        if len(segments) < len(parts):
            raise StateMismatch("a state comes before the segments that are applied to it, not after them")
        note = "exact: the segment of all samples; whether a state after it is exact shows when it is applied"
        return Merged(reduce(compose, segments), True, note)
    if len(segments) == len(later):
        if not isinstance(first, PTA):
            raise StateMismatch(f"a segment is applied to a state of pta, not of {first.name}")
        merged = first.clone()
        exact = all(list(map(merged.apply, segments)))  # a list, so that all are applied
        not_exact = "P is exact; R may differ in classes that the segments touched"
        return Merged(merged, exact, "exact: the state after stepping through all samples" if exact else not_exact)
    if segments:
        raise StateMismatch("states and segments are mixed; merge one state with the segments that come after it")
    return _with_sums([part for part in parts if isinstance(part, Adapter)])


def _with_sums(states: Sequence[Adapter]) -> Merged:
    """The last state with the sums of those before it: a prior and a calibration are about the last samples."""
    for state in states:
        if isinstance(state, PTA):
            raise StateMismatch(
                f"two states of {state.name} cannot be merged: a state does not hold how much its stream has forgotten "
                "of what came before; merge the segment of the later stream (summarise, Segment.save)"
            )
        if not isinstance(state, WPTA):
            why = "what it learns depends on what it has learned; those of wpta can"
            raise StateMismatch(f"states of {state.name} cannot be merged: {why}")
        if state.name != states[-1].name:
            raise StateMismatch(f"a state of {state.name} and one of {states[-1].name} cannot be merged")
        if state.parameters != states[-1].parameters:
            raise StateMismatch("the states were learned with different parameters")
    *before, last = [state for state in states if isinstance(state, WPTA)]
    merged = last.clone()
    for state in before:
        merged.apply(state.learned)
    apart = last.depth == 1 and last.prior == "none" and last.in_front is None
    not_exact = (
        "not exact: with a prior, an offset or depth 2, what a stream teaches depends on what it has taught before"
    )
    notes = ["exact: the sums of all samples" if apart else not_exact, "centre and metric are refreshed from the sums"]
    of_the_last = {
        "offset": last.in_front is not None,
        "prior": last.prior == "local",
        "temperature": last.calibration == "matched",
    }
    notes += [f"the {name} is that of the last state" for name, is_on in of_the_last.items() if is_on]
    return Merged(merged, apart, "; ".join(notes))
