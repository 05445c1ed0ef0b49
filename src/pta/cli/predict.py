"""`pta predict`: a folder, a list of paths or a camera in, labels out, better as it goes."""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from pta.adapters.adapter import adapter_class, parameters_of
from pta.cli import options
from pta.cli.interrupts import stopping_on_interrupt
from pta.cli.messages import say
from pta.cli.method_choice import parse_setting
from pta.cli.output import STDOUT, progress
from pta.cli.row_files import open_row_file, require_row_file
from pta.encoders import DEFAULT_MODEL, load_encoder
from pta.errors import InvalidParameter, StateMismatch, UnreadableFile, reason
from pta.files import require_writable
from pta.inference.encoding import Reading, SampleReference
from pta.inference.live_classifier import Classifier
from pta.inference.predict import Predicted, predict_stream
from pta.inference.rows import Rows
from pta.inference.sources import find_samples, frames_from, paths_from
from pta.modality import Modality

_STDIN = "-"


def predict(
    images: Annotated[list[str], typer.Argument(metavar="PLACE", help="Folders and files, or - for standard input.")],
    classes: options.Classes = None,
    model: options.Model = DEFAULT_MODEL,
    templates: options.Templates = "clip",
    descriptions: options.Descriptions = None,
    method: Annotated[str | None, typer.Option(help="How to adapt; see pta methods.", show_default="pta")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD.NAME=VALUE", help="A parameter of the method, e.g. pta.h=50."),
    ] = None,
    views: Annotated[
        int, typer.Option(help="Views made of every image, if the method needs them; no other does.")
    ] = 64,
    state: Annotated[Path | None, typer.Option(help="Go on from this file if it exists, and save to it.")] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Answer from the state and learn nothing.")] = False,
    top: Annotated[int, typer.Option(min=1, help="How many classes to give for each image.")] = 1,
    out: Annotated[Path, typer.Option(help="Where rows go: a .jsonl or .csv file, or - for stdout.")] = Path(STDOUT),
    append: Annotated[bool, typer.Option("--append", help="Add rows to a file that exists.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV to stdout instead of JSON lines.")] = False,
    frames: Annotated[bool, typer.Option("--frames", help="Standard input holds pictures, not their paths.")] = False,
    on_error: options.OnError = "stop",
    fast_decode: options.FastDecode = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    batch: options.Batch = 64,
    workers: options.Workers = None,
) -> None:
    """Label images and learn from them on the way; rows are written as each batch is done."""
    if classes is None:
        raise InvalidParameter(
            "what is there to tell apart? --classes FILE (one name a line) or --classes cat,dog,bird"
        )
    names = options.read_classes(classes)
    top = min(top, len(names))
    encoder = load_encoder(model, device=device, dtype=dtype)
    source, total = _source(images, frames, encoder.modality)
    require_row_file(out, append, csv, top)
    parameters = _parameters(method or "pta", set_ or [], total)
    if state is not None:
        if set_ and state.exists():
            raise InvalidParameter(f"{state} was learnt with parameters of its own; leave --set out")
        _require_state(state, freeze)
        if state.resolve() == out.resolve():
            raise InvalidParameter("--out and --state must be two files")
    classifier = Classifier(
        encoder,
        names,
        templates=templates,
        descriptions=options.read_descriptions(descriptions),
        method=method or "pta",
        views=views,
        **parameters,
    )
    if state is not None and state.exists():
        _resume(classifier, state, method)
    reading = classifier.reading(Reading(batch, workers, fast_decode))
    if classifier.adapter.scope == "batch":
        say(f"{classifier.adapter.name} answers a batch at a time: its answers depend on --batch {batch}")
    tally = _Tally(classifier.adapter.name)
    with stopping_on_interrupt() as interrupted, open_row_file(out, csv, top) as (rows, file):
        batches = predict_stream(
            classifier,
            source,
            reading,
            learn=not freeze,
            top=top,
            on_error=on_error,
            live=total is None,
            stopping=lambda: interrupted() is not None,
        )
        try:
            _follow(batches, rows, file, total, tally)
        except Exception:
            _finish(classifier, None if freeze else state, tally)
            raise
        _finish(classifier, None if freeze else state, tally)
        if signal := interrupted():
            raise typer.Exit(128 + signal)


def _parameters(method: str, settings: Sequence[str], total: int | None) -> dict[str, Any]:
    """What the user set, and the length of the stream where the method wants it and it is known."""
    if adapter_class(method).scope == "stream":
        raise InvalidParameter(
            f"{method} answers a whole set at once, not a stream; pta extract and pta eval --predictions do that"
        )
    parameters = {}
    for owner, name, value in map(parse_setting, settings):
        if owner != method:
            raise InvalidParameter(f"--set {owner}.{name}: the method is {method}")
        parameters[name] = value
    if total and "length" in parameters_of(method):
        parameters.setdefault("length", total)
    return parameters


def _source(places: Sequence[str], frames: bool, modality: Modality) -> tuple[Iterable[SampleReference], int | None]:
    """The images, and how many there are, if that can be known."""
    if _STDIN not in places:
        if frames:
            raise InvalidParameter("--frames reads pictures from standard input; say so with -")
        found = find_samples(places, modality)
        return found, len(found)
    if len(places) > 1:
        raise InvalidParameter("standard input (-) cannot be mixed with other places")
    if sys.stdin is None:
        raise InvalidParameter("there is no standard input to read from")
    # Not sys.stdin itself: Python could not end while a thread waits in it for a picture that never comes.
    stdin = os.dup(sys.stdin.fileno())
    if frames:
        return frames_from(os.fdopen(stdin, "rb")), None
    return paths_from(os.fdopen(stdin, encoding="utf-8", errors="surrogateescape")), None


def _require_state(state: Path, freeze: bool) -> None:
    """Find out before the work whether there is something to answer from, or a place for what is learnt."""
    if not freeze:
        require_writable(state)
    elif not state.exists():
        raise UnreadableFile(f"--freeze answers from a state, but there is none: {state}")


def _resume(classifier: Classifier, state: Path, method: str | None) -> None:
    classifier.load(state)
    if method not in (None, classifier.adapter.name):
        raise StateMismatch(f"{state} was learnt by {classifier.adapter.name}, not by {method}; leave --method out")


@dataclass
class _Tally:
    """What has been done so far."""

    method: str
    images: int = 0
    changed: int = 0
    skipped: int = 0
    began: float = field(default_factory=time.perf_counter)

    def add(self, part: Predicted) -> None:
        self.images += len(part.answers)
        self.changed += sum(answer.changed for _, answer in part.answers)
        self.skipped += len(part.failures)

    def sentence(self) -> str:
        speed = self.images / max(time.perf_counter() - self.began, 1e-9)
        share = 100 * self.changed / max(self.images, 1)
        skipped = f", {self.skipped:,} skipped" if self.skipped else ""
        return (
            f"images: {self.images:,}{skipped}, {speed:,.1f} a second; "
            f"{self.method} changed the answer for {self.changed:,} ({share:.1f} %)"
        )


def _finish(classifier: Classifier, state: Path | None, tally: _Tally) -> None:
    """Save what was learnt, and say what was done."""
    if state is not None:
        classifier.save(state)
    say(tally.sentence() + (f"; state saved to {state}" if state is not None else ""))


def _follow(batches: Iterable[Predicted], rows: Rows, file: TextIO, total: int | None, tally: _Tally) -> None:
    """Write the rows of every batch as it is done, and show how it goes."""
    with progress() as bar:
        task = bar.add_task("reading", total=total)
        for part in batches:
            try:
                for path, answer in part.answers:
                    rows.write(path, answer)
                file.flush()
            except BrokenPipeError:  # whoever was reading has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return
            except OSError as error:
                raise UnreadableFile(f"rows cannot be written: {reason(error)}") from None
            for failure in part.failures:
                say(f"skipped: {failure}")
            tally.add(part)
            bar.update(task, completed=tally.images + tally.skipped, description=tally.sentence())
