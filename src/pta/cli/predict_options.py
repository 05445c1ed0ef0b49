"""The options of `pta predict`, where its rows go, and where it starts: also after samples that a state has learned."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from pta.cli import options
from pta.cli.messages import say, write_stdout
from pta.cli.monitor_options import MonitorOptions, On
from pta.cli.output import STDOUT
from pta.cli.video_options import VideoOptions
from pta.data.label_file import as_in_csv, labels_by_key
from pta.data.sample_set import SampleReference
from pta.data.sources.video import OF_FRAMES, VideoFrames
from pta.door.claims import sole_writers
from pta.door.patience import Unread
from pta.errors import InvalidParameter, StateMismatch, UnreadableFile
from pta.methods import adapter_class
from pta.methods.state_file import require_saved_for
from pta.monitor import parse_reactions
from pta.monitor.reactions import may_hold
from pta.run.classifier import MORE, AnswerBatch, require_holdable, require_probabilities
from pta.run.reading import Reading, Views
from pta.run.row_file import REASON, CsvRows, JsonLines, RowFile, RowMark, columns, path_as_written
from pta.run.saved_stream import Progress, RowSink, RowThread, StreamRecord, read_record, skip_taken


@dataclass(frozen=True)
class StateOptions:
    """The state of the method, which is loaded and saved."""

    state: Annotated[Path | None, "Load this state if it exists, and save to it."] = None
    save_every: Annotated[float, "Seconds between saves of the state.", Option(min=0)] = 30
    resume: Annotated[bool, "Skip samples that the state has learned from, and add missing rows."] = False
    freeze: Annotated[bool, "Predict from the state without learning."] = False

    @property
    def loaded(self) -> Path | None:
        """The state that exists and is continued."""
        return self.state if self.state is not None and self.state.exists() else None

    @property
    def saved(self) -> Path | None:
        """Where the state is saved."""
        return None if self.freeze else self.state

    def require(self, method: options.MethodOptions, names: Sequence[str]) -> None:
        """Refuse a state of other classes or another method."""
        if self.loaded is not None:
            require_saved_for(self.loaded, names, method.method)

    def require_usable(self, rows: "RowOptions", *, frames: bool) -> None:
        """Refuse options of a state that do not go together, or not with the output."""
        if self.resume:
            if self.state is None:
                raise InvalidParameter("--resume continues from a saved state; name it with --state")
            if rows.file is None:
                raise InvalidParameter("--resume adds missing rows to a file; name it with --out")
            if frames:
                raise InvalidParameter(
                    "--resume lists the samples again, which --frames cannot do; leave one of them out"
                )
            if self.freeze:
                raise InvalidParameter(
                    "--resume continues learning, and --freeze does not learn; leave one of them out"
                )
        if self.state is None:
            if self.freeze:
                raise InvalidParameter(
                    "--freeze predicts from a saved state; name it with --state (zero-shot: --method clip)"
                )
        elif os.path.realpath(self.state) == os.path.realpath(rows.out_):
            # unlike Path.resolve, it accepts circular links
            raise InvalidParameter("--out and --state must be different files")
        elif self.freeze and not self.loaded:
            raise UnreadableFile(f"--freeze needs a state, but there is no such file: {self.state}")

    def require_same(self, decoder: str | None, runtime: str) -> None:
        """Refuse a state learned from pictures of another decoder, and say if another runtime made its features."""
        record = None if self.loaded is None else read_record(self.loaded)
        if record is not None and decoder is not None and record.decoder not in ("", decoder):
            problem = f"{self.state} was learned from pictures decoded by {record.decoder}, not by {decoder}"
            raise StateMismatch(f"{problem}; choose the decoder with --decode pillow or --decode gpu")
        if record is not None and record.runtime not in ("", runtime):
            say(f"{self.state} was learned from features made by {record.runtime}; now {runtime} makes them")


@dataclass(frozen=True)
class RowOptions:
    """What rows hold, what is learned with their samples, and where they go."""

    top: Annotated[int, "How many classes to list for each sample.", Option(min=1)] = 1
    raw_probability: Annotated[bool, "Write the softmax of the raw logits; wpta: with --calibration fixed."] = False
    reject_below: options.RejectBelow = None
    reject_holds: options.RejectHolds = None
    shadow: Annotated[bool, "Answer as zero-shot; adapted_label is what adaptation would say."] = False
    on: On = None
    learn_labels: Annotated[
        Path | None, "Learn these labels (path,label) with their samples; none: not at all.", Option(metavar="FILE.csv")
    ] = None
    out_: Annotated[
        str, "File for the rows, .jsonl or .csv, or - for stdout; with --cluster a folder.", Option("--out")
    ] = STDOUT
    append: Annotated[bool, "Append rows to an existing file."] = False
    replace: options.Replace = False
    csv: Annotated[bool, "Write CSV to stdout instead of JSON lines."] = False

    def __post_init__(self) -> None:
        if self.reject_below is not None:
            require_probabilities(self.raw_probability, self.reject_below)
        parse_reactions(self.on or [])

    @property
    def reactions(self) -> dict[str, str]:
        """Those to alarms, by alarm."""
        return parse_reactions(self.on or [])

    @property
    def file(self) -> Path | None:
        """The file, unless rows go to standard output."""
        return None if self.out_ == STDOUT else Path(self.out_)

    @property
    def more(self) -> list[str]:
        """The columns beside the usual ones."""
        holds = self.reject_holds is not None or may_hold(self.reactions)
        given = self.learn_labels is not None, self.reject_below is not None, holds
        return list(compress(MORE, (self.shadow or "zero-shot" in self.reactions.values(), *given)))

    def require_place(self, top: int, append: bool, of_frames: Sequence[str] = ()) -> None:
        """Refuse an output that rows cannot be written to, before any work."""
        out = self.file
        if out is None:
            if append or sys.stdout is None:
                raise InvalidParameter(
                    "--append adds to a file; name it with --out" if append else "there is no stdout"
                )
            return
        if self.csv:
            raise InvalidParameter("--csv is for standard output; the suffix of --out decides the format of a file")
        if out.suffix not in (".jsonl", ".csv"):
            raise UnreadableFile(f"--out {out}: the file must end in .jsonl or .csv")
        if append and self.replace:
            raise InvalidParameter("--append keeps the rows of a file, and --replace does not; leave one of them out")
        if out.is_file():
            if not append and not self.replace and _has_rows(out):
                raise UnreadableFile(
                    f"{out} exists; --append adds to it, --replace overwrites it, or choose another --out"
                )
            if not os.access(out, os.R_OK | os.W_OK):
                raise UnreadableFile(f"cannot write {out}: permission denied")
            if not self.replace:
                self._require_same_rows(out, top, [*self.more, *of_frames])

    def _require_same_rows(self, out: Path, top: int, more: list[str]) -> None:
        with out.open(encoding="utf-8", errors="surrogateescape") as file:
            first = file.readline().rstrip("\r\n").removesuffix(f",{REASON}")
        found = [name for name in (*MORE, *OF_FRAMES) if f', "{name}": ' in first]
        other_columns = first not in ("", ",".join(columns(top, more)))
        if out.suffix == ".jsonl" and first and not first.startswith("{"):
            raise UnreadableFile(f"{out} does not hold JSON lines; choose another --out")
        if other_columns if out.suffix == ".csv" else first.endswith("}") and found != more:
            same = "use the same --top, --reject-below, --reject-holds, --shadow and --learn-labels as before"
            raise UnreadableFile(f"{out} has other columns ({first[:200]}); {same}, or choose another --out")

    @contextmanager
    def open(
        self, top: int, after: RowMark | None, *, give_up: bool = False, of_frames: Sequence[str] = ()
    ) -> Iterator[RowSink]:
        """A sink for rows, some of which may have no answer; a file is first cut off after the mark."""
        usual = [*self.more, *of_frames]
        more = [*usual, REASON] if give_up else usual
        if self.file is None:
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
            yield _StandardOutput(CsvRows(sys.stdout, top, more) if self.csv else JsonLines(sys.stdout, usual))
            return
        if self.replace and self.file.is_file():
            os.truncate(self.file, 0)
        file = RowFile(self.file, top, after, more)
        thread = RowThread(file)
        try:
            yield thread
        finally:
            thread.close()
            file.close()


def _has_rows(out: Path) -> bool:
    """Whether a file holds more than the header that a refused run leaves."""
    with out.open("rb") as file:
        return bool(file.readline()) and (out.suffix != ".csv" or bool(file.readline()))


class _StandardOutput:
    """Rows on standard output, which cannot be resumed."""

    def __init__(self, rows: CsvRows | JsonLines) -> None:
        self._rows = rows

    def write(self, paths: Sequence[str], answers: AnswerBatch) -> None:
        write_stdout(lambda: self._rows.write(paths, answers))

    def finish(self) -> None:
        write_stdout()

    def mark(self) -> None:
        return None


@dataclass(frozen=True)
class PredictOptions:
    """The options of `pta predict`."""

    images: Annotated[
        list[str], "Folders, files and videos, a camera, or - for standard input.", Argument(metavar="PATH")
    ]
    texts: options.TextOptions
    model: options.ModelOptions
    method: options.MethodOptions
    state: StateOptions
    rows: RowOptions
    watching: MonitorOptions
    samples: options.SampleOptions
    video: VideoOptions
    cluster: options.ClusterOptions
    views: Annotated[int, "Augmented views per image, for methods that need views."] = 64
    frames: Annotated[bool, "Standard input has pictures instead of paths."] = False
    by: Annotated[
        str | None, "With --cluster: one stream per value of it, or per folder.", Option(metavar="COLUMN")
    ] = None
    epsilon: Annotated[
        float, "With --cluster: how far prototypes may differ where blocks meet.", Option(min=0, max=1)
    ] = 1e-6

    def __post_init__(self) -> None:
        if self.state.loaded is not None and (self.method.set_ or self.method.stages.given):
            given = "--set, --offset, --prior, --gate and --calibration"
            raise InvalidParameter(f"{self.state.state} has parameters of its own; leave out {given}")
        if self.rows.learn_labels is not None:
            if self.state.freeze:
                raise InvalidParameter("--learn-labels learns, and --freeze does not; leave one of them out")
            adapter_class(self.method.name).require_takes_labels()
        if self.watching.monitor is not None and self.watching.monitor == self.rows.file:
            raise InvalidParameter("--monitor and --out are the same file; choose another --monitor")
        if self.state.freeze and (self.rows.reject_holds is not None or may_hold(self.rows.reactions)):
            raise InvalidParameter("--freeze learns nothing, so there is nothing to hold or cap; leave one of them out")
        if self.rows.reject_holds is not None:
            require_holdable(adapter_class(self.method.name))

    def reading(self) -> Reading:
        """How samples are read for the method."""
        parameters = self.method.parameters
        method = adapter_class(self.method.name)
        if method.scope == "stream":
            raise InvalidParameter(
                f"{self.method.name} needs the whole dataset at once, not a stream; "
                "use pta extract and pta eval --predictions"
            )
        reading = self.samples.reading(self.samples.processes)
        return reading.for_needs(method.needs_with(parameters), Views.crops(self.views))

    def columns(self, source: object) -> list[str]:
        """The columns that rows have because samples are frames; refused if a state does not fit to them."""
        if not isinstance(source, VideoFrames):
            self.video.require_none()
            return []
        if len(source.regions) > 1 and self.state.state is not None:
            raise InvalidParameter(
                "--state holds what one region teaches; give one --region with it (pta watch keeps several)"
            )
        if source.is_live and self.state.resume:
            raise InvalidParameter(
                "--resume takes the frames that were missed, which a camera does not have; use --append"
            )
        return source.columns

    def labels(self, names: Sequence[str], samples: object = None) -> dict[str, int] | None:
        """The labels that are learned, by the samples' keys; refused if none is of these samples."""
        file = self.rows.learn_labels
        if file is None:
            return None
        labels = labels_by_key(file, names)
        if isinstance(samples, Sequence) and not any(as_in_csv(sample.key) in labels for sample in samples):
            first = as_in_csv(samples[0].key)
            raise InvalidParameter(f"{file} has no label for any of these samples, the first of which is {first}")
        return labels

    @contextmanager
    def alone(self, names: Sequence[str], top: int, of_frames: Sequence[str] = ()) -> Iterator[None]:
        """Be the only writer of the rows and the state, once they are known to be usable."""
        with sole_writers(self.state.saved, self.rows.file):
            self.rows.require_place(top, self.rows.append or self.state.resume, of_frames)
            self.state.require(self.method, names)
            yield

    def require_cluster(self) -> None:
        """Refuse what one stream on one machine can do only."""
        rows, state = self.rows, self.state
        self.cluster.refuse(
            {
                "--resume": state.resume,
                "--freeze": state.freeze,
                "--append": rows.append,
                "--replace": rows.replace,
                "--csv": rows.csv,
                "--frames": self.frames,
                "--top": rows.top > 1,
                "--raw-probability": rows.raw_probability,
                "--reject-below": rows.reject_below is not None,
                **self.watching.given(),
                **self.video.given(),
                "--on": bool(rows.on),
                "--reject-holds": rows.reject_holds is not None,
                "--shadow (rows have label and zero_shot_label)": rows.shadow,
                "more than one PATH": len(self.images) > 1,
                "standard input": self.images == [STDOUT],
                "stdout as --out": rows.file is None,
            }
        )


@dataclass(frozen=True)
class Start:
    """The samples to predict, the progress of the stream before them, and where their rows go in the file."""

    samples: Iterable[SampleReference]
    progress: Progress
    after: RowMark | None = None


def find_start(
    samples: Iterable[SampleReference], state: StateOptions, rows: RowOptions, *, give_up_unread: bool
) -> Start:
    """Find where to start, and tell the user if it is not the first sample. With `--replace`, no row stays."""
    out = Path(rows.out_)
    record = None if state.loaded is None or state.freeze else read_record(state.loaded)
    if state.resume and state.loaded is not None:
        start = _after(samples, record, state.loaded, out)
        _require_listed(samples, start.progress, give_up_unread)
        return start
    if state.resume and out.is_file() and out.stat().st_size:
        raise UnreadableFile(
            f"{out} holds rows, but there is no {state.state}; choose another --out, or leave out --resume"
        )
    progress = Progress() if record is None else Progress(record.decoder, record.runtime)
    if isinstance(samples, VideoFrames) and record is not None:
        samples.seen(record.last)
    if record is None or record.rows is None or rows.replace or not record.rows.is_in(out):
        return Start(samples, progress)
    if surplus := record.rows.keys_after(out):
        say(
            f"{out} has {len(surplus):,} rows written after {state.state} was saved; "
            "the state has not learned from them"
        )
        return Start(samples, progress)
    return Start(samples, progress, _with_unwritten(record.rows))


def _after(samples: Iterable[SampleReference], record: StreamRecord | None, state: Path, out: Path) -> Start:
    if record is None or record.rows is None:
        raise StateMismatch(
            f"{state} does not record a stream with a row file; without --resume it continues from what was learned"
        )
    rest: Iterator[SampleReference]
    if isinstance(samples, VideoFrames) and record.last is not None:
        rest, progress = samples.after(record.last), Progress.going_on(record)
    else:
        rest, progress = skip_taken(samples, record, state)
    if not record.rows.is_in(out):
        todo = "restore that file, or leave out --resume and choose another --out"
        raise UnreadableFile(f"{out} {_what_is_wrong(out, record.rows, state)}; {todo}")
    if surplus := record.rows.keys_after(out):
        _require_own(surplus, samples, record.taken, record.rows, out)
        say(f"{len(surplus):,} rows after the last saved state will be written again")
    return Start(rest, progress, _with_unwritten(record.rows))


def _require_listed(samples: object, progress: Progress, give_up_unread: bool) -> None:
    """Refuse to go on past a sample that could not be read and is not even listed now: what comes after it would."""
    key = progress.unread
    if key is not None and isinstance(samples, Sequence) and all(one.key != key for one in samples[progress.taken :]):
        if not give_up_unread:
            raise Unread.of([f"{key} is not there any more"]).error()
        progress.unread = None


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
