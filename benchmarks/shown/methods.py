"""docs/methods.md."""

import json
from statistics import fmean

from shown.results import FILES as OF_DATASET
from shown.results import Table, found, one, rows, written

FILES = {
    "Caltech101 part": "caltech101_test_sub",
    "Cars val": "stanford_cars_val",
    "UCF101 part": "ucf101_test_sub_nounproxy",
    "ImageNet train, 7 per class": "imagenet_train_7shot",
}
NOISE = {"Fashion, noise": "fashion_noise"}
ONLINE = (
    *("clip", "pta", "wpta", "pta on tda", "tda", "boostadapter", "mta", "zero", "bca", "tca"),
    *("sca", "adapt", "dota", "oga", "onzeta", "freetta", "dpe"),
)
COLUMNS = ("confidence", "right_above_99")
TOGETHER = ("stata", "adapt-transductive", "transclip")  # methods that need a batch or the whole stream


def _named(method: str) -> str:
    return method if " on " in method else f"`{method}`"


def _measured(method: str, file: str) -> dict[str, str] | None:
    csv = "fashion-methods" if file in NOISE.values() else "real-features"
    return next(iter(found(csv, dataset=file, method=method)), None)


def winners() -> Table:
    files = FILES | NOISE
    best = {
        file: max(float(row["accuracy"]) for method in ONLINE if (row := _measured(method, file)))
        for file in files.values()
    }

    def cell(method: str, file: str) -> str:
        row = _measured(method, file)
        if row is None:
            return ""
        text = f"{float(row['accuracy']):.2f} ± {float(row['deviation']):.2f}"
        return f"**{text}**" if method in ONLINE and float(row["accuracy"]) == best[file] else text

    def line(method: str) -> list[str]:
        row = _measured(method, FILES["ImageNet train, 7 per class"])
        speed = written(row["samples_per_second"], ",.0f") if row and row["samples_per_second"] else ""
        state = _size(int(row["state_bytes"])) if row else ""
        return [_named(method), *(cell(method, file) for file in files.values()), speed, state]

    return [["method", *files, "samples/s", "state"], *map(line, (*ONLINE, *TOGETHER))]


def _size(count: int) -> str:
    return "–" if not count else f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def reasons() -> Table:
    files = {name: file for name, file in (FILES | NOISE).items() if file != "imagenet_train_7shot"}
    kinds = dict.fromkeys(row["what"] for row in rows("reasons"))
    cells = {(row["what"], row["dataset"]): row["value"].replace("-", "−") for row in rows("reasons")}
    return [["", *files], *([kind, *(cells.get((kind, file), "") for file in files.values())] for kind in kinds)]


def calibration() -> Table:
    files = FILES | {"Fashion, clean": "fashion_clean"} | NOISE
    names = {'`pta`, `variant="paper"`': "pta, paper", "pta on tda": "combined"}
    shown = (
        *("`clip`", "`pta`", *names, "`oga`", "`freetta`", "`tda`", "`boostadapter`", "`tca`", "`dota`", "`sca`"),
        *("`adapt`", "`mta`", "`zero`", "`bca`", "`onzeta`", *map(_named, TOGETHER)),
    )

    def cell(method: str, file: str) -> str:
        row = next(iter(found("calibration", dataset=file, method=method)), None)
        if row is None:
            return ""
        errors = [row["raw_calibration_error"], row["calibration_error"]][: 1 if row["factor"] == "1.0" else 2]
        return f"{float(row['accuracy']):.2f}: {' → '.join(f'{float(error):.2f}' for error in errors)}"

    lines = [[title, *(cell(names.get(title, title.strip("`")), file) for file in files.values())] for title in shown]
    return [["method", *files], *lines]


def confidence() -> Table:
    files = {"Fashion, noise": "fashion_noise", "ImageNet train, 7 per class": "imagenet_train_7shot"}
    files |= {"Fashion, low contrast": "fashion_contrast"}

    def line(title: str, file: str, method: str) -> list[str]:
        row = one("calibration", dataset=file, method=method)
        pairs = ([f"{float(row[f'{raw}{column}']):.0f}" for raw in ("raw_", "")] for column in COLUMNS)
        cells = (pair[0] if row["factor"] == "1.0" else " → ".join(pair) for pair in pairs)
        return [title, f"`{method}`", f"{float(row['accuracy']):.0f}", *cells]

    head = ["", "method", "accuracy", "mean confidence", "accuracy above 0.99"]
    return [head, *(line(*file, method) for file in files.items() for method in ("clip", "pta"))]


def _of_prior(stream: str, method: str, prior: str, column: str, file: str | None = None) -> float:
    """A number of prior.csv, by default the mean over its files."""
    named = {"stream": stream, "method": method, "prior": prior} | ({} if file is None else {"dataset": file})
    return fmean(float(row[column]) for row in found("prior", **named))


def prior() -> Table:
    def cell(stream: str, method: str) -> str:
        return " → ".join(f"{_of_prior(stream, method, one, 'accuracy'):.2f}" for one in ("none", "local"))

    streams, methods = dict.fromkeys(row["stream"] for row in rows("prior")), ("clip", "tda", "pta", "wpta")
    return [
        ["stream", *(f"`{method}`" for method in methods)],
        *([stream, *(cell(stream, method) for method in methods)] for stream in streams),
    ]


def matched() -> Table:
    kinds = [(method, stream) for method in ("clip", "tda", "pta", "wpta") for stream in ("shuffled", "separate")]

    def cell(file: str, method: str, stream: str) -> str:
        columns = ("fixed_error", "matched_error")  # two digits, as the file has them: 13.253 is 13.25 there, not 13.2
        return " → ".join(f"{_of_prior(stream, method, 'none', column, file):.2f}" for column in columns)

    lines = [[f"`{one[0]}`, {one[1]}", *(cell(file, *one) for file in FILES.values())] for one in kinds]
    return [["method, stream", *FILES], *lines]


def wpta_ablation() -> Table:
    files = ("Caltech101", "Cars", "UCF101")
    lines = [
        [row["method"], *(row[OF_DATASET[name]] for name in files), row["accuracy"]] for row in rows("wpta-ablation")
    ]
    return [["", *files, "mean"], *lines]


def wpta_speed() -> Table:
    columns = ("implementation", "us_per_sample", "of_chunk", "of_chunk_compiled")
    head = ["", "µs per sample", "relative to PTA's chunk engine", "relative to the compiled one"]
    return [head, *([row[column] for column in columns] for row in rows("wpta-cpu"))]


def rounding() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        given = ", ".join(f"`{name}={json.dumps(value)}`" for name, value in json.loads(row["parameters"]).items())
        counts = (_count(row[f"{kind}_answers"], row[f"{kind}_streams"]) for kind in ("batches", "last_bit"))
        sizes = (row[f"{kind}_largest"] for kind in ("batches", "last_bit"))
        compared = [cell for pair in zip(counts, sizes, strict=True) for cell in pair]
        return [", ".join(filter(None, (f"`{row['method']}`", given))), written(row["answers"], ",.0f"), *compared]

    largest = "largest difference of logits"
    return [
        ["method", "answers", "changed by batches", largest, "changed by the last bit", largest],
        *map(line, rows("rounding")),
    ]


def _count(answers: str, streams: str) -> str:
    return f"{int(answers):,} (in {streams} streams)" if answers not in ("", "0") else answers


def speed() -> Table:
    def milliseconds(microseconds: str) -> str:
        value = float(microseconds) / 1000
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    def line(row: dict[str, str]) -> list[str]:
        long = f"{milliseconds(row['long_stream_us_per_sample'])} ({int(row['long_stream']):,})"
        return [
            f"`{row['method']}`",
            milliseconds(row["loop_us_per_sample"]),
            milliseconds(row["batches_us_per_sample"]),
            f"{float(row['speedup_over_loop']):.0f}×",
            written(row["compared_on"], ",.0f"),
            long,
            milliseconds(row["one_by_one_us_per_sample"]),
        ]

    unit = "ms per sample"
    head = ["method", f"loop, {unit}", f"batches, {unit}", "ratio", "samples compared"]
    return [[*head, f"longer stream, {unit}", f"one by one, {unit}"], *map(line, rows("methods-cpu"))]
