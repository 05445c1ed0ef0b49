"""What was learned before a block, as the content of a safetensors file."""

from torch import Tensor

from pta.cluster.blocks.prototype_blocks import Knowledge
from pta.cluster.blocks.scanning import Before
from pta.cluster.blocks.sum_blocks import Totals
from pta.door.files import pack_tensors, unpack_tensors
from pta.methods.wpta import Sums

_KIND = "what was learned before a block"


def pack_before(before: Before) -> bytes:
    """The content of a file."""
    if isinstance(before, Knowledge):
        held = {name: part for name, part in vars(before).items() if isinstance(part, Tensor)}
        return pack_tensors(held, {"kind": _KIND, "position": before.position})
    parts = {name: sums for name, sums in vars(before).items() if sums is not None}
    tensors = {f"{name}.{piece}": part for name, sums in parts.items() for piece, part in sums.tensors.items()}
    counts = {name: sums.count for name, sums in parts.items()}
    own = {"fingerprint": before.sums.fingerprint, "rule": dict(before.sums.rule)}
    return pack_tensors(tensors, {"kind": _KIND, "counts": counts, **own})


def unpack_before(content: bytes) -> Before:
    """What `pack_before` packed."""
    tensors, about = unpack_tensors(content, _KIND)
    if "position" in about:
        return Knowledge(about["position"], tensors["knowledge"], tensors["touched"], tensors.get("unscaled"))

    def sums(name: str) -> Sums:
        own = {key.removeprefix(f"{name}."): part for key, part in tensors.items() if key.startswith(f"{name}.")}
        return Sums(about["counts"][name], about["fingerprint"], about["rule"], own)

    return Totals(sums("sums"), sums("refreshed") if "refreshed" in about["counts"] else None)
