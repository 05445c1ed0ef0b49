"""`pta predict`: classify a folder, a list of paths or a stream of frames, and adapt to them."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pta.cli import options
from pta.cli.before_loading import NamedModel, Texts
from pta.cli.class_list import read_classes
from pta.cli.messages import detail, say, warn
from pta.cli.method_choice import parameters_of
from pta.cli.output import STDOUT, progress
from pta.cli.resuming import Start, find_start, require_no_parameters, require_resumable, require_same_decoder
from pta.cli.row_files import open_rows, require_row_file
from pta.data.open import open_places
from pta.door.claims import sole_writers
from pta.door.limits import USUAL_LIMITS, Limits
from pta.errors import InvalidParameter, UnreadableFile
from pta.methods import adapter_class
from pta.methods.state_file import require_saved_for
from pta.models import DEFAULT_MODEL, find_device
from pta.run.classifier import Classifier, crops, require_probabilities
from pta.run.decoding import Decoding, open_decoding, require_decoder
from pta.run.predict import Tally, predict_stream
from pta.run.reading import Reading
from pta.run.rows.saved_stream import SavedStream

_ENDING = [one for one in signal.Signals if one.name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")]


def predict(
    images: Annotated[list[str], typer.Argument(metavar="PATH", help="Folders and files, or - for standard input.")],
    classes: options.Classes = None,
    model: options.Model = DEFAULT_MODEL,
    templates: options.Templates = "clip",
    descriptions: options.Descriptions = None,
    method: Annotated[str | None, typer.Option(help="Adaptation method; see pta methods.", show_default="pta")] = None,
    set_: options.Set = None,
    prior: options.Prior = None,
    calibration: options.Calibration = None,
    views: Annotated[int, typer.Option(help="Augmented views per image, for methods that need views.")] = 64,
    state: Annotated[Path | None, typer.Option(help="Load this state if it exists, and save to it.")] = None,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between saves of the state.")] = 30,
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip samples that the state has learned from, and add missing rows.")
    ] = False,
    freeze: Annotated[bool, typer.Option("--freeze", help="Predict from the state without learning.")] = False,
    top: Annotated[int, typer.Option(min=1, help="How many classes to list for each sample.")] = 1,
    raw_probability: Annotated[
        bool, typer.Option("--raw-probability", help="Write the softmax of the raw logits, not calibrated.")
    ] = False,
    reject_below: Annotated[
        float | None,
        typer.Option(
            metavar="P", min=0, max=1, help="Mark rows with a lower probability as rejected (none of the classes)."
        ),
    ] = None,
    out_: Annotated[
        str, typer.Option("--out", help="File for the rows, .jsonl or .csv, or - for stdout; with --cluster a folder.")
    ] = STDOUT,
    append: Annotated[bool, typer.Option("--append", help="Append rows to an existing file.")] = False,
    replace: options.Replace = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV to stdout instead of JSON lines.")] = False,
    frames: Annotated[bool, typer.Option("--frames", help="Standard input has pictures instead of paths.")] = False,
    on_error: options.OnError = "stop",
    fast_decode: options.FastDecode = False,
    decode: options.Decode = "auto",
    decode_memory: options.DecodeMemory = options.USUAL_DECODE_MEMORY,
    no_compile: options.NoCompile = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    batch: options.Batch = 64,
    workers: options.Workers = None,
    processes: options.Processes = None,
    max_pixels: options.MaxPixels = USUAL_LIMITS.max_pixels,
    max_bytes: options.MaxBytes = USUAL_LIMITS.max_bytes,
    cluster: options.Cluster = None,
    block: options.Block = options.USUAL_BLOCK,
    parallel: options.Parallel = None,
    trust_network: options.TrustNetwork = False,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="With --cluster: one stream per value of it, or per folder.")
    ] = None,
    epsilon: Annotated[
        float, typer.Option(min=0, max=1, help="With --cluster: how far prototypes may differ where blocks meet.")
    ] = 1e-6,
) -> None:
    """Classify images or point clouds and adapt to them; each batch's rows are written at once."""
    parameters = _parameters(method or "pta", set_ or [], prior, calibration)
    named = NamedModel(model, device if cluster is None else "cpu", dtype)  # --device is the workers' on a cluster
    how = options.decoding(decode, decode_memory, no_compile)
    limits = Limits(max_bytes, max_pixels)
    reading = Reading(batch, workers, fast_decode, limits=limits, **how)
    reading.for_needs(adapter_class(method or "pta").needs_with(parameters), crops(views))
    require_probabilities(raw_probability, reject_below)
    if cluster is not None:
        single = {
            "--resume": resume,
            "--freeze": freeze,
            "--append": append,
            "--replace": replace,
            "--csv": csv,
            "--frames": frames,
        }
        single |= {
            "--top": top > 1,
            "--raw-probability": raw_probability,
            "--reject-below": reject_below is not None,
            "more than one PATH": len(images) > 1,
        }
        options.refuse_on_cluster(single | {"standard input": images == [STDOUT], "stdout as --out": out_ == STDOUT})
        from pta.cli.on_cluster import OnCluster, PredictOptions, predict_on_cluster

        asked = PredictOptions(
            *(images[0], classes, named, templates, descriptions, device, reading, on_error, views),
            *(method, parameters, state),
        )
        on = OnCluster(cluster, out_, block, parallel, trust_network)
        predict_on_cluster(on, asked, epsilon, by)
        return
    if by is not None:
        raise InvalidParameter(
            "--by runs one stream per key on Ray, also on that of this machine; give --cluster local"
        )
    names = read_classes(classes)
    top, out = min(top, len(names)), Path(out_)
    if resume:
        require_resumable(state, out, frames=frames, freeze=freeze)
    if freeze and state is None:
        raise InvalidParameter("--freeze predicts from a saved state; name it with --state (zero-shot: --method clip)")
    if state is not None:
        require_no_parameters(state, parameters)
        _require_state(state, out, freeze)
    require_decoder(decode, named.modality, find_device(device))
    source, total = open_places(images, named.modality, frames=frames, limits=limits)
    texts = Texts.read(names, templates, descriptions, named.modality.prompts)
    kept = None if freeze else state
    with sole_writers(kept, None if str(out) == STDOUT else out):
        require_row_file(out, append or resume, replace, csv, top, rejects=reject_below is not None)
        if state is not None and state.exists():
            require_saved_for(state, names, method)
        start = find_start(source, kept, out, resume=resume, replace=replace)
        encoder = named.encoder  # from here on, nothing is left that could be checked without it
        chosen = {"method": method or "pta", **parameters}
        chosen |= {"templates": texts.templates, "descriptions": texts.descriptions, "views": views}
        chosen |= {"raw_probability": raw_probability, "reject_below": reject_below}
        classifier = Classifier(encoder, names, expected=total or None, **chosen)
        if state is not None and state.exists():
            classifier.load(state)
            detail(f"{state}: {classifier.adapter.name} has learned from {classifier.adapter.position:,} samples")
        in_processes = options.in_processes(processes, encoder, total)
        reading = classifier.reading(reading.changed(processes=in_processes))
        decoding = open_decoding(encoder, reading)
        if state is not None and state.exists() and decode == "auto":
            require_same_decoder(state, decoding.name)
        if replace and out.is_file():
            os.truncate(out, 0)
        start.progress.decoded_by(decoding.name)
        with open_rows(out, csv, top, start.after, rejects=reject_below is not None) as rows:
            stream = SavedStream(classifier, kept, rows, start.progress, save_every)
            how = {"learn": not freeze, "top": top, "on_error": on_error, "live": total is None}
            _label(classifier, start, total, reading, decoding, stream, **how)


def _label(
    classifier: Classifier,
    start: Start,
    total: int | None,
    reading: Reading,
    decoding: Decoding,
    stream: SavedStream,
    **how: Any,
) -> None:
    """Predict the samples, and print a summary."""
    tally = Tally(classifier.adapter.name, f"{classifier.encoder.modality.name}s")
    if classifier.adapter.scope == "batch":
        say(f"{tally.method} predicts a batch at a time: its results depend on --batch {reading.batch}")
    with stopping_on_interrupt() as interrupted, progress() as bar:
        task = bar.add_task("reading", total=total, completed=start.progress.taken)

        def stopping() -> bool:
            stream.save_if_due()
            return interrupted() is not None

        is_refused, before = True, start.progress.taken
        try:
            with stream:
                how |= {"first": start.progress.taken, "total": total, "stopping": stopping}
                for part in predict_stream(classifier, start.samples, reading, decoding, **how):
                    stream.add(part)
                    for failure in part.failures:
                        warn(f"skipped: {failure}")
                    tally.add(part)
                    bar.update(task, completed=start.progress.taken, description=tally.sentence())
            is_refused = total is None and not start.progress.taken
        finally:
            number = interrupted()
            if number or not is_refused or start.progress.taken > before:
                saved = f"; state saved to {stream.saved_to}" if stream.saved_to else ""
                for remark in filter(None, [*classifier.adapter.remarks(), decoding.sentence()]):
                    say(remark)
                say(tally.sentence() + saved + (f"; stopped by {signal.Signals(number).name}" if number else ""))
        if number:
            raise typer.Exit(128 + number)
    if is_refused:
        raise InvalidParameter("standard input was empty; - reads paths, one per line, or pictures with --frames")


@contextmanager
def stopping_on_interrupt() -> Iterator[Callable[[], int | None]]:
    """On a signal that ends the process, finish the current batch.

    Yields a function that returns the signal's number, or None. A second signal stops at once.
    """
    caught: list[int] = []

    def note(number: int, frame: object) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    ignored = [one for one in _ENDING if one.name == "SIGHUP" and signal.getsignal(one) == signal.SIG_IGN]  # by nohup
    before = {number: signal.signal(number, note) for number in _ENDING if number not in ignored}
    try:
        yield lambda: caught[0] if caught else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parameters(method: str, settings: Sequence[str], *around: str | None) -> dict[str, Any]:
    if adapter_class(method).scope == "stream":
        raise InvalidParameter(
            f"{method} needs the whole dataset at once, not a stream; use pta extract and pta eval --predictions"
        )
    return parameters_of(method, settings, *around)


def _require_state(state: Path, out: Path, freeze: bool) -> None:
    """Check before any work that the state can be loaded, or that it can be saved."""
    if os.path.realpath(state) == os.path.realpath(out):  # unlike Path.resolve, it accepts circular links
        raise InvalidParameter("--out and --state must be different files")
    if freeze and not state.exists():
        raise UnreadableFile(f"--freeze needs a state, but there is no such file: {state}")
