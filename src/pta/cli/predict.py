"""`pta predict`: classify a folder, a list of paths or a stream of frames, and adapt to them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from typer import Exit

from pta.cli.messages import detail, say, warn
from pta.cli.monitor_options import Outlet
from pta.cli.options import ClassTexts
from pta.cli.output import progress
from pta.cli.predict_options import PredictOptions, Start, find_start
from pta.data.open import open_places
from pta.data.sources.video import VideoFrames
from pta.errors import InvalidParameter, UnreadSample
from pta.methods.frozen import warn_if_frozen_early
from pta.models import Encoder, find_device
from pta.monitor.scores import BLOCK
from pta.run.classifier import Classifier
from pta.run.predict import Tally, predict_stream
from pta.run.reading import Decoding, Reading, open_decoding, require_decoder, start_early
from pta.run.saved_stream import SavedStream
from pta.run.watched import SeparateStreams, WatchedStream

_ENDING = [one for one in signal.Signals if one.name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")]


def predict(given: PredictOptions) -> None:
    """Classify images or point clouds and adapt to them; each batch's rows are written at once."""
    named, reading = given.cluster.model(given.model), given.reading()
    if given.cluster.cluster is not None:
        given.require_cluster()
        from pta.cli.on_cluster import predict_on_cluster

        predict_on_cluster(given, named, reading)
        return
    if given.by is not None:
        raise InvalidParameter(
            "--by runs one stream per key on Ray, also on that of this machine; give --cluster local"
        )
    names, modality = given.texts.names(), named.modality
    given.state.require_usable(given.rows, frames=given.frames)
    device = find_device(given.model.device)
    require_decoder(reading.decode, modality, device)
    source, total = open_places(
        given.images, modality, frames=given.frames, limits=reading.limits, video=given.video.reading
    )
    of_frames = given.columns(source)
    texts = given.texts.of(names, modality.prompts)
    top = min(given.rows.top, len(names))
    labels = given.labels(names, source)
    goes_on = given.rows.append or given.state.resume
    with given.alone(names, top, of_frames):
        given.watching.require_place(append=goes_on, replace=given.rows.replace)
        if isinstance(source, VideoFrames):
            source.check()
        start = find_start(source, given.state, given.rows, give_up_unread=given.samples.give_up_unread)
        start_early(reading, modality, device, total)
        encoder = named.encoder  # from here on, nothing is left that could be checked without it
        classifier = _classifier(given, encoder, texts, total)
        if (state := given.state.loaded) is not None:
            classifier.load(state)
            detail(f"{state}: {classifier.adapter.name} has learned from {classifier.adapter.position:,} samples")
            if given.state.freeze:
                warn_if_frozen_early(classifier.adapter)
            reading = classifier.reading(reading)
        if reading.batch < 2 and classifier.adapter.parameters["offset"] == "panda-batch":
            raise InvalidParameter("--batch 1: offset=panda-batch makes negatives of two or more pictures of a batch")
        decoding = open_decoding(encoder, reading)
        given.state.require_same(decoding.name if reading.decode == "auto" else None, encoder.runtime)
        start.progress.made_by(decoding.name, encoder.runtime)
        guard = given.watching.guard(classifier.classifier, classifier.adapter, given.rows.reactions, state)
        resume = given.state.resume
        opened = given.watching.outlet(append=goes_on, replace=given.rows.replace, resume=resume)
        rows = given.rows.open(top, start.after, give_up=given.samples.give_up_unread, of_frames=of_frames)
        with opened as outlet, rows as sink:
            watch = WatchedStream(classifier, guard, outlet.alarm, outlet.write)
            saved, every = given.state.saved, given.state.save_every
            stream = SavedStream(classifier, saved, sink, start.progress, every, watch.packed)
            streams: WatchedStream | SeparateStreams = watch
            if isinstance(source, VideoFrames) and len(source.regions) > 1:
                streams = SeparateStreams(partial(_begin_stream, given, classifier, outlet))
            _predict(given, classifier, source, start, total, reading, decoding, stream, top, labels, streams, outlet)


def _begin_stream(given: PredictOptions, classifier: Classifier, outlet: Outlet, source: str) -> WatchedStream:
    """The stream of a region, which has learned nothing yet."""
    own, region = classifier.fork(), outlet.within(source.rpartition("#")[2])
    guard = given.watching.guard(own.classifier, own.adapter, given.rows.reactions)
    return WatchedStream(own, guard, region.alarm, region.write)


def _classifier(given: PredictOptions, encoder: Encoder, texts: ClassTexts, total: int | None) -> Classifier:
    rows = {name: getattr(given.rows, name) for name in ("raw_probability", "reject_below", "reject_holds", "shadow")}
    how = {"templates": texts.templates, "descriptions": texts.descriptions, "method": given.method.name, **rows}
    return Classifier(encoder, texts.names, **how, views=given.views, expected=total or None, **given.method.parameters)


def _predict(
    given: PredictOptions,
    classifier: Classifier,
    source: object,
    start: Start,
    total: int | None,
    reading: Reading,
    decoding: Decoding,
    stream: SavedStream,
    top: int,
    labels: dict[str, int] | None,
    watch: WatchedStream | SeparateStreams,
    outlet: Outlet,
) -> None:
    """Predict the samples, and print a summary."""
    video = source if isinstance(source, VideoFrames) else None
    is_file = video is not None and not video.is_live
    tally = Tally(classifier.adapter.name, f"{classifier.encoder.modality.name}s", classifier.shadow)
    if classifier.adapter.scope == "batch":
        say(f"{tally.method} predicts a batch at a time: its results depend on --batch {reading.batch}")
    with stopping_on_interrupt() as interrupted, progress() as bar:
        task = bar.add_task("reading", total=total, completed=start.progress.taken)

        def stopping() -> bool:
            stream.save_if_due()
            outlet.look(watch.position)
            return interrupted() is not None

        is_refused, before = True, start.progress.taken
        try:
            with stream:
                for part in predict_stream(
                    *(classifier, start.samples, reading, decoding),
                    first=start.progress.taken,
                    total=total,
                    learn=not given.state.freeze,
                    top=top,
                    labels=labels,
                    on_error=given.samples.on_error,
                    live=total is None and not is_file,
                    stopping=stopping,
                    watch=watch,
                ):
                    stream.add(part)
                    outlet.look(watch.position, came=True)
                    for failure in part.failures:
                        warn(f"{'given up' if isinstance(failure, UnreadSample) else 'skipped'}: {failure}")
                    bar.update(task, completed=start.progress.taken, description=tally.add(part))
            is_refused = total is None and video is None and not start.progress.taken
        finally:
            if video is not None:
                video.close()
            number = interrupted()
            if number or not is_refused or start.progress.taken > before:
                saved = f"; state saved to {stream.saved_to}" if stream.saved_to else ""
                learned = [remark for _, one in watch.each() for remark in one.adapter.remarks()]
                seen = video.remarks if video is not None else []
                for remark in filter(None, [*dict.fromkeys(learned), decoding.sentence(), *seen]):
                    say(remark)
                say(tally.sentence() + saved + (f"; stopped by {signal.Signals(number).name}" if number else ""))
                watch.flush()
                for name, one in watch.each():
                    if one.position >= BLOCK:
                        say(f"{name} {outlet.health(one.monitor, one.held)}".lstrip())
                if labels and not tally.marked.get("learned_label"):
                    warn(f"warning: {given.rows.learn_labels} has no label for any of these samples")
        if number:
            raise Exit(128 + number)
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
