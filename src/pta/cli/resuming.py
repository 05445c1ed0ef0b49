"""Where `pta predict` starts: at the beginning of its samples, or after those that a state has seen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pta.cli.messages import say
from pta.cli.output import STDOUT
from pta.datasets.sample_set import SampleReference
from pta.errors import InvalidParameter, StateMismatch, UnreadableFile
from pta.inference.row_file import RowMark
from pta.inference.rows import path_as_written
from pta.inference.stream_progress import Progress, StreamRecord, read_record, skip_taken


@dataclass(frozen=True)
class Start:
    """The samples that are to be answered, how far the stream is before them, and where their rows go in the file."""

    samples: Iterable[SampleReference]
    progress: Progress
    after: RowMark | None = None


def require_resumable(state: Path | None, out: Path, *, frames: bool, freeze: bool) -> None:
    """Refuse --resume where there is nothing that could be gone on with."""
    if state is None:
        raise InvalidParameter("--resume goes on where a state was saved; say which with --state")
    if str(out) == STDOUT:
        raise InvalidParameter("--resume adds the rows that are missing to a file; say which with --out")
    if frames:
        raise InvalidParameter("--resume reads its samples again, and --frames cannot; leave one of them out")
    if freeze:
        raise InvalidParameter("--resume goes on learning, and --freeze learns nothing; leave one of them out")


def require_same_decoder(state: Path, decoder: str) -> None:
    """Refuse to go on from a state that was learnt from pictures that another decoder has decoded."""
    record = read_record(state)
    if record is not None and record.decoder not in ("", decoder):
        learnt = f"{state} was learnt from pictures that {record.decoder} has decoded, not {decoder}"
        raise StateMismatch(f"{learnt}; say what is to decode these with --decode pillow or --decode gpu")


def find_start(samples: Iterable[SampleReference], state: Path | None, out: Path, *, resume: bool) -> Start:
    """Where to start, said to the user where it is not simply the beginning."""
    record = read_record(state) if state is not None and state.exists() else None
    if resume and state is not None and state.exists():
        return _after(samples, record, state, out)
    if resume and out.is_file() and out.stat().st_size:
        raise UnreadableFile(f"{out} holds rows, but there is no {state}; choose another --out, or leave --resume out")
    progress = Progress("" if record is None else record.decoder)
    if record is None or record.rows is None or not record.rows.is_in(out):
        return Start(samples, progress)
    if surplus := record.rows.keys_after(out):
        say(f"{out} has {len(surplus):,} rows that were written after {state} was saved; it has not learned from them")
        return Start(samples, progress)
    return Start(samples, progress, _with_unwritten(record.rows))


def _after(samples: Iterable[SampleReference], record: StreamRecord | None, state: Path, out: Path) -> Start:
    if record is None or record.rows is None:
        raise StateMismatch(
            f"{state} records no stream with rows in a file; without --resume it goes on with what was learned"
        )
    rest, progress = skip_taken(samples, record, state)
    if not record.rows.is_in(out):
        todo = "bring that file back, or leave --resume out and choose another --out"
        raise UnreadableFile(f"{out} {_what_is_wrong(out, record.rows, state)}; {todo}")
    if surplus := record.rows.keys_after(out):
        _require_own(surplus, samples, record.taken, record.rows, out)
        say(f"{len(surplus):,} rows after the last saved state are written again")
    return Start(rest, progress, _with_unwritten(record.rows))


def _what_is_wrong(out: Path, mark: RowMark, state: Path) -> str:
    if not out.is_file():
        return f"is not there, and {state} was saved with rows in a file called {mark.file}"
    if (size := out.stat().st_size) < mark.bytes:
        return f"has {size:,} bytes, not the {mark.bytes:,} that {state} was saved with: rows are missing"
    return f"is not the file that {state} was saved with, which was called {mark.file}"


def _require_own(surplus: Sequence[str | None], samples: Any, taken: int, mark: RowMark, out: Path) -> None:
    """Refuse to cut off rows of other samples than those whose rows come next, where these are known."""
    if isinstance(samples, Sequence):
        coming = {
            None,
            *mark.keys_unwritten(),
            *(path_as_written(sample.key, out.suffix) for sample in samples[taken:]),
        }
        for key in surplus:
            if key not in coming:
                raise UnreadableFile(f"{out} holds a row for {key}, which is none of the samples that come next")


def _with_unwritten(mark: RowMark) -> RowMark:
    if mark.unwritten:
        say(f"{mark.unwritten.count(chr(10)):,} rows that could not be written before are written now")
    return mark
