"""`pta eval`: methods compared on a feature file."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
from rich.filesize import decimal
from rich.table import Table
from typer import Option

from pta import __version__
from pta.cli import options
from pta.cli.fitting_table import print_table, right
from pta.cli.leaderboard import run_leaderboard
from pta.cli.messages import say
from pta.cli.method_choice import MethodChoice, Methods, open_features
from pta.cli.order_options import OrderOptions
from pta.cli.output import (
    command_line,
    on_batch,
    plain,
    progress,
    require_folder_place,
    require_new,
    require_place,
    require_report,
    write_json,
)
from pta.core.labels import NONE, UNKNOWN, Labels
from pta.data.features import FeatureFile
from pta.data.label_file import labels_of_paths
from pta.data.views import confident_mean
from pta.door.files import write_atomically
from pta.door.plain_files import make_folder
from pta.errors import InvalidParameter, InvalidSamples
from pta.measure.difference import Difference
from pta.measure.evaluate import MethodSummary
from pta.measure.evaluate import evaluate as evaluate_methods
from pta.measure.record import Evaluation, predictions_file
from pta.measure.report.stream_page import StreamReport, render_stream_report
from pta.methods import Adapter, adapter_class, load_adapter

_WITHOUT_LABELS = (
    "--predictions DIR writes the answers; for labels, give pta extract a folder with one sub-folder per class, or a "
    ".csv of path,label"
)


def evaluate(
    features: options.Features,
    *,
    method: Annotated[
        list[str] | None,
        "Method, or 'all' methods whose inputs the file has; may be repeated.",
        Option(show_default="clip, pta"),
    ] = None,
    set_: options.Set = None,
    stages: options.StageOptions,
    preset: Annotated[
        str | None,
        "Parameter values for the file's dataset or a named one: paper, paper/dtd. --set overrides them.",
        Option(metavar="NAME[/DATASET]"),
    ] = None,
    model: Annotated[
        str | None,
        "The model that made the features, for methods that need it (tca, tpt, histpt).",
        Option(envvar=options.MODEL_VARIABLE),
    ] = None,
    device: options.Device = "cpu",
    order: OrderOptions,
    state: Annotated[Path | None, "Also run the method of this state, from what it has learned."] = None,
    labels: Annotated[
        Path | None, "Count by these labels (path,label); samples without one do not count.", Option(metavar="FILE.csv")
    ] = None,
    learn_labels: Annotated[
        Path | None, "Learn these labels (path,label); their samples do not count.", Option(metavar="FILE.csv")
    ] = None,
    views: Annotated[bool, "Replace each sample by the mean of the most confident 10 % of its views."] = False,
    json: Annotated[Path | None, "Write one record per method and seed; - for stdout."] = None,
    predictions: Annotated[Path | None, "Folder for METHOD-SEED.csv files, in stream order."] = None,
    report: Annotated[Path | None, "Write a page about the first seed, .html."] = None,
    leaderboard: Annotated[
        Path | None, "Add the methods' rows on seven streams to this file.", Option(metavar="BOARD.csv")
    ] = None,
    replace: options.Replace = False,
) -> None:
    """Compare methods on feature files: accuracy, gain over zero-shot, calibration error and speed."""
    asked = method or (["clip", "pta"] if state is None else ["clip"])
    choice = MethodChoice(asked, set_ or [], preset, model, device, stages.given)
    if leaderboard is not None:
        if any((state, labels, learn_labels, views, json, predictions, report, order != OrderOptions(seed=order.seed))):
            raise InvalidParameter("--leaderboard has its own streams and files; leave out other options than --seed")
        run_leaderboard(leaderboard, open_features(features, "cpu"), choice, order.seeds)
        return
    require_report(report, json, replace=replace)
    datasets = [_with_confident_views(data) if views else data for data in open_features(features, device)]
    if labels is not None:
        datasets = [_with_labels(labels, datasets, order)]
    told = None
    if learn_labels is not None:
        for name in choice.names:
            if name != "clip":  # which learns nothing anyway
                adapter_class(name).require_takes_labels()
        told = _labels(learn_labels, datasets, order)
    if report is not None:
        _require_reportable(datasets, [*choice.names, *([] if state is None else ["that of the state"])])
    starts = {data.name: _start(state, data, order, choice.names, told) for data in datasets}
    seeds, lengths = order.seeds, [order.length_with_all_seeds(data) for data in datasets]
    if predictions is not None:
        require_folder_place(predictions)
        for path in _files(predictions, [(data, choice.asked) for data in datasets], seeds):  # before a model is loaded
            require_new(path, replace=replace)
    work = [(data, choice.for_file(order.part(data, seeds[0])) | _of(starts[data.name])) for data in datasets]
    if predictions is not None:
        for path in _files(predictions, work, seeds):
            make_folder(path.parent)
            require_place(path, replace=replace)
    done: list[Evaluation] = []
    with progress() as bar:
        samples = sum(length * len(methods) for length, (_, methods) in zip(lengths, work, strict=True))
        task = bar.add_task("", total=samples)
        for data, methods in work:
            encoder, advance = choice.model_for(methods), on_batch(bar, task, data.name)
            given = (data, methods, seeds)
            start = starts[data.name]
            done += evaluate_methods(
                *given, stream=order, batch=order.batch, model=encoder, start=start, told=told, on_batch=advance
            )
    if predictions is not None:
        for evaluation in done:
            evaluation.write_predictions(_folder(predictions, evaluation.data.name, len(datasets)))
    if report is not None:
        write_atomically(report, render_stream_report(_report(done, datasets[0], order, seeds[0], told)).encode())
    _say_remarks(done, datasets)
    if write_json(json, [evaluation.record() for evaluation in done]):
        print_table(_table(order, work, len(seeds), done), keys=2)


def _require_reportable(datasets: Sequence[FeatureFile], names: Sequence[str]) -> None:
    """Refuse a report that would have nothing to say."""
    if len(datasets) > 1:
        raise InvalidParameter("--report is about one feature file; give one --features")
    if datasets[0].labels is None:
        raise InvalidSamples(f"{datasets[0].name} has no labels, which --report counts by; {_WITHOUT_LABELS}")
    if set(names) <= {"clip"}:
        raise InvalidParameter("--report compares a method with zero-shot; name one with --method")


def _report(
    done: Sequence[Evaluation], data: FeatureFile, order: OrderOptions, seed: int, told: Labels | None
) -> StreamReport:
    """The page of the first method that is not zero-shot, in the order of the first seed."""
    runs = [one.run for one in done if one.seed == seed]
    adapted = next(run for run in runs if run.method != "clip")
    part = next(one.data for one in done if one.seed == seed)
    plain_clip = next(evaluate_methods(data, {"clip": {}}, [seed], stream=order, batch=order.batch, told=told)).run
    learned = next(one.stream.get("learned_before") for one in done if one.run is adapted)
    name = adapted.method if learned is None else f"{adapted.method} from a state of {learned:,} samples"
    drawn = "" if order.kind == "given" else f", seed {seed}"
    return StreamReport(
        title=f"{name} on {data.name}",
        kicker=f"{data.name} · {order.in_words}{drawn}",
        headline=Difference.between([plain_clip], [adapted]).sentence(name, things="samples"),
        things="samples",
        class_names=part.classifier.class_names,
        zero_shot=plain_clip,
        adapted=adapted,
        others=[(run.method, run) for run in runs if run is not adapted and run.method != "clip"],
        adapted_name=name,
        provenance={
            "Features": f"{data.name}, sha256 {data.fingerprint}",
            "Order": f"{order.in_words}{drawn}",
            "Method": name,
            "Parameters": adapted.settings,
            "Software": f"pta {__version__}",
            "To reproduce": command_line(),
        },
    )


def _labels(file: Path, datasets: Sequence[FeatureFile], order: OrderOptions) -> Labels:
    data = datasets[0]
    if len(datasets) > 1 or order.classes_drawn is not None:
        raise InvalidParameter(f"{file} is about one feature file with all its classes; leave out --classes-drawn")
    if data.paths is None:
        raise InvalidSamples(f"{data.name} does not say which samples it holds, so {file} cannot be matched with it")
    labels = labels_of_paths(file, data.classifier.class_names, data.paths)
    say(f"{int((labels != UNKNOWN).sum()):,} of {len(labels):,} samples of {data.name} have a label in {file}")
    return labels


def _with_labels(file: Path, datasets: Sequence[FeatureFile], order: OrderOptions) -> FeatureFile:
    """The features with other labels; samples of none of the classes have none that could be right."""
    if order.kind not in ("iid", "given"):
        raise InvalidParameter(f"the stream {order.kind} needs all labels; with --labels choose iid or given")
    labels = _labels(file, datasets, order)
    return dataclasses.replace(datasets[0], labels=np.where(labels == NONE, UNKNOWN, labels))


def _start(
    state: Path | None, data: FeatureFile, order: OrderOptions, names: Sequence[str], told: Labels | None
) -> Adapter | None:
    """The state of a method that begins with it."""
    if state is None:
        return None
    if order.classes_drawn is not None:
        raise InvalidParameter("--state belongs to all classes of the file; leave out --classes-drawn")
    adapter = load_adapter(state, data.classifier)
    if told is not None:
        adapter.require_takes_labels()
    if adapter.name in names:
        raise InvalidParameter(f"{state} is a state of {adapter.name}, which begins with it; leave it out of --method")
    return adapter


def _of(start: Adapter | None) -> Methods:
    return {} if start is None else {start.name: start.parameters}


def _files(
    predictions: Path, work: Sequence[tuple[FeatureFile, Iterable[str]]], seeds: Sequence[int]
) -> Iterator[Path]:
    """The files of predictions of these methods and seeds."""
    for data, methods in work:
        for name, number in product(methods, seeds):
            yield _folder(predictions, data.name, len(work)) / predictions_file(name, number)


def _say_remarks(done: Sequence[Evaluation], datasets: Sequence[FeatureFile]) -> None:
    for evaluation in done:
        for remark in evaluation.run.remarks:
            say(f"{evaluation.data.name}, seed {evaluation.seed}: {remark}")
    for data in datasets:
        if data.labels is None:
            say(f"{data.name} has no labels, so accuracies are unknown; {_WITHOUT_LABELS}")


def _with_confident_views(data: FeatureFile) -> FeatureFile:
    if data.samples.views is None:
        raise InvalidSamples(f"{data.name} holds no views; make them with pta extract --views 64")
    return dataclasses.replace(data, name=f"{data.name}, views", samples=confident_mean(data.samples, data.classifier))


def _folder(predictions: Path, dataset: str, datasets: int) -> Path:
    return predictions if datasets == 1 else predictions / dataset


def _table(
    order: OrderOptions, work: Sequence[tuple[FeatureFile, Methods]], seeds: int, done: Sequence[Evaluation]
) -> Table:
    table = Table(
        *("dataset", "method"),
        *right("accuracy", "gain over zero-shot", "mean per class", "worst class"),
        *right("calibration error", "samples/s", "state"),
        title=f"{order.in_words}: accuracy in %, mean ± standard deviation over {seeds} seed(s)",
    )
    for data, methods in work:
        for method in methods:
            own = [e.record() for e in done if e.data.name == data.name and e.run.method == method]
            summary = MethodSummary.of(own)
            deviation = "" if summary.deviation is None else f" ± {summary.deviation:.2f}"
            raw = "" if summary.accuracy is None else f" (raw {summary.raw_calibration_error:.2f})"
            cells = [
                _cell(summary.accuracy) + deviation,
                _cell(summary.gain, "+.2f"),
                _cell(summary.mean_per_class),
                _cell(summary.worst_class),
                _cell(summary.calibration_error) + raw,
            ]
            speed = f"{summary.samples_per_second:,.0f}"
            table.add_row(plain(data.name), method, *cells, speed, decimal(summary.state_bytes))
    return table


def _cell(value: float | None, form: str = ".2f") -> str:
    return "no labels" if value is None else format(value, form)
