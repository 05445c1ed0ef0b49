"""Names of archives: one, a pattern `*.tar`, or a range `shard-{000..003}.tar`."""

import re
from functools import reduce
from itertools import product
from pathlib import Path

from pta.errors import InvalidParameter, UnreadableFile

_MOST_SHARDS = 100_000
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_SHARD = re.compile(r"\.(tar(\.(gz|bz2|xz|zst))?|tgz|tbz2?|txz)$", re.IGNORECASE)


def is_shards(source: str) -> bool:
    """Whether a source is written like tar archives.

    >>> [is_shards(name) for name in ("a.tar", "s-{000..003}.tar", "*.tar", "a.tar.gz", "photos")]
    [True, True, True, True, False]
    """
    return _SHARD.search(source) is not None


def find_shards(source: str) -> list[Path]:
    """The archives that a path, a pattern or a range stands for; every one of a range must be there."""
    if Path(source).is_file():
        return [Path(source)]
    found = [path for text in expand_range(source) for path in _matching(text)]
    if not found:
        raise UnreadableFile(f"no such archive: {source}")
    return found


def expand_range(source: str) -> list[str]:
    """Every text that `{first..last}` stands for, with the zeros in front that its ends have, as in a shell.

    >>> expand_range("shard-{008..010}.tar")
    ['shard-008.tar', 'shard-009.tar', 'shard-010.tar']
    """
    ranges, total = [], 1
    for first, last in _RANGE.findall(source):
        total *= max(int(last) - int(first) + 1, 0) if max(len(first), len(last)) < 10 else _MOST_SHARDS + 1
        if not 0 < total <= _MOST_SHARDS:
            raise InvalidParameter(
                f"{source}: {{{first}..{last}}} must count upwards, to at most {_MOST_SHARDS:,} shards"
            )
        padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
        width = max(len(first), len(last)) if padded else 0
        ranges.append([str(number).zfill(width) for number in range(int(first), int(last) + 1)])
    pattern = _RANGE.sub("\0", source)
    return [reduce(lambda text, number: text.replace("\0", number, 1), chosen, pattern) for chosen in product(*ranges)]


def _matching(text: str) -> list[Path]:
    parts = Path(text).parts
    patterned = [number for number, part in enumerate(parts) if any(sign in part for sign in "*?[")]
    if not patterned:
        if not Path(text).is_file():
            raise UnreadableFile(f"no such archive: {text}")
        return [Path(text)]
    return sorted(path for path in Path(*parts[: patterned[0]]).glob("/".join(parts[patterned[0] :])) if path.is_file())
