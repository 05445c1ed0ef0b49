"""Where `pta predict` starts: at its first sample, or after those that a state has learned from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pta.cli.messages import say
from pta.cli.output import STDOUT
from pta.data.sample_set import SampleReference
from pta.errors import InvalidParameter, StateMismatch, UnreadableFile
from pta.run.rows.row_file import RowMark
from pta.run.rows.rows import path_as_written
from pta.run.rows.stream_progress import Progress, StreamRecord, read_record, skip_taken


@dataclass(frozen=True)
class Start:
    """The samples to predict, the progress of the stream before them, and where their rows go in the file."""

    samples: Iterable[SampleReference]
    progress: Progress
    after: RowMark | None = None


def require_resumable(state: Path | None, out: Path, *, frames: bool, freeze: bool) -> None:
    """Refuse --resume if it cannot work with the other options."""
    if state is None:
        raise InvalidParameter("--resume continues from a saved state; name it with --state")
    if str(out) == STDOUT:
        raise InvalidParameter("--resume adds missing rows to a file; name it with --out")
    if frames:
        raise InvalidParameter("--resume lists the samples again, which --frames cannot do; leave one of them out")
    if freeze:
        raise InvalidParameter("--resume continues learning, and --freeze does not learn; leave one of them out")


def require_no_parameters(state: Path, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters beside a state, which has its own."""
    if parameters and state.exists():
        raise InvalidParameter(f"{state} has parameters of its own; leave out --set, --prior and --calibration")


def require_same_decoder(state: Path, decoder: str) -> None:
    """Refuse to continue a state that was learned from pictures of another decoder."""
    record = read_record(state)
    if record is not None and record.decoder not in ("", decoder):
        problem = f"{state} was learned from pictures decoded by {record.decoder}, not by {decoder}"
        raise StateMismatch(f"{problem}; choose the decoder with --decode pillow or --decode gpu")


def find_start(
    samples: Iterable[SampleReference], state: Path | None, out: Path, *, resume: bool, replace: bool = False
) -> Start:
    """Find where to start, and tell the user if it is not the first sample. With `replace`, no row of `out` stays."""
    record = read_record(state) if state is not None and state.exists() else None
    if resume and state is not None and state.exists():
        return _after(samples, record, state, out)
    if resume and out.is_file() and out.stat().st_size:
        raise UnreadableFile(f"{out} holds rows, but there is no {state}; choose another --out, or leave out --resume")
    progress = Progress("" if record is None else record.decoder)
    if record is None or record.rows is None or replace or not record.rows.is_in(out):
        return Start(samples, progress)
    if surplus := record.rows.keys_after(out):
        say(f"{out} has {len(surplus):,} rows written after {state} was saved; the state has not learned from them")
        return Start(samples, progress)
    return Start(samples, progress, _with_unwritten(record.rows))


def _after(samples: Iterable[SampleReference], record: StreamRecord | None, state: Path, out: Path) -> Start:
    if record is None or record.rows is None:
        raise StateMismatch(
            f"{state} does not record a stream with a row file; without --resume it continues from what was learned"
        )
    rest, progress = skip_taken(samples, record, state)
    if not record.rows.is_in(out):
        todo = "restore that file, or leave out --resume and choose another --out"
        raise UnreadableFile(f"{out} {_what_is_wrong(out, record.rows, state)}; {todo}")
    if surplus := record.rows.keys_after(out):
        _require_own(surplus, samples, record.taken, record.rows, out)
        say(f"{len(surplus):,} rows after the last saved state will be written again")
    return Start(rest, progress, _with_unwritten(record.rows))


def _what_is_wrong(out: Path, mark: RowMark, state: Path) -> str:
    if not out.is_file():
        return f"does not exist; the rows of {state} were in a file called {mark.file}"
    if (size := out.stat().st_size) < mark.bytes:
        return f"has {size:,} bytes, but {state} was saved with {mark.bytes:,}: rows are missing"
    return f"is not the file that {state} was saved with ({mark.file})"


def _require_own(surplus: Sequence[str | None], samples: Any, taken: int, mark: RowMark, out: Path) -> None:
    """Refuse to cut off rows of samples that are not predicted next, if the next samples are known."""
    if isinstance(samples, Sequence):
        coming = {
            None,
            *mark.keys_unwritten(),
            *(path_as_written(sample.key, out.suffix) for sample in samples[taken:]),
        }
        for key in surplus:
            if key not in coming:
                raise UnreadableFile(f"{out} holds a row for {key}, which is not one of the next samples")


def _with_unwritten(mark: RowMark) -> RowMark:
    if mark.unwritten:
        say(f"{mark.unwritten.count(chr(10)):,} rows that could not be written before will be written now")
    return mark
