"""Which learned samples a person means: by sequence number, or by the id of a request and a place in it."""

from collections.abc import Iterable, Iterator

from pta.errors import shown
from pta.serve.requests import Refused, SampleLabel, id_hash
from pta.serve.streams.live_stream import LiveStream
from pta.serve.streams.past import Past


def sequences_of(past: Past, stream: LiveStream, labels: Iterable[SampleLabel]) -> Iterator[int]:
    """The sequence numbers of the samples that labels name."""
    for one in labels:
        if one.id is None:
            assert one.sequence is not None  # as the door requires one of the two
            yield one.sequence
            continue
        found = past.journal.find(past.number, id_hash(one.id))
        if found is None:
            raise Refused(
                f"stream {stream.name} has no sample with the id {shown(one.id)}: it was not learned, was erased, "
                "or was dropped for room",
                404,
            )
        if one.place not in found.places:
            places = f"0 to {found.places[-1]}"
            if len(found.places) <= found.places[-1]:
                places = ", ".join(map(str, found.places))
            raise Refused(f"the id {shown(one.id)} has samples at places {places}, not at {one.place}")
        yield int(found.sequences[found.places == one.place][0])


def require_sample(past: Past, stream: LiveStream, sequence: int, is_there: bool) -> None:
    """Refuse a row that is not a learned sample, or is one that no replay reaches."""
    imports = [row.sequence for row in stream.history.in_force if row.kind == "import"]
    if sequence < max(imports, default=0):
        raise Refused(
            f"sequence {sequence} is before the import at {imports[-1]}, which the state starts from; "
            "undo or rewind the import to label it",
            409,
        )
    past.require_kept(sequence - 1)
    if is_there:
        return
    kinds = {row.sequence: row.kind for row in stream.operations}
    if sequence in kinds:
        raise Refused(f"sequence {sequence} is the operation {kinds[sequence]}, not a sample")
    if sequence > past.last:
        raise Refused(f"sequence {sequence} is not in the journal of {stream.name}, which ends at {past.last}", 404)
    raise Refused(f"stream {stream.name} has no sample {sequence}: it was erased, or never learned", 404)
