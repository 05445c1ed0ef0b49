"""docs/findings.md."""

from collections.abc import Iterator
from statistics import fmean

from shown.results import FILES, Table, found, one, only, rows, written


def _settings(titles: dict[str, str], first: str = "") -> Table:
    """Accuracies of PTA's settings, by the title that each is shown under."""
    lines = [[title, *_of_files("switches", "accuracy", setting=setting)] for title, setting in titles.items()]
    return [[first, *FILES], *lines]


def _of_files(finding: str, column: str, **where: str) -> list[str]:
    return [one(f"findings-{finding}", dataset=file, **where)[column] for file in FILES.values()]


def rules() -> Table:
    return _settings({"zero-shot": "zero-shot", "PTA, released rule": "released", "PTA, printed equations": "paper"})


def guarded() -> Table:
    return _settings(
        {
            "w = 0.01, β (the default)": "released",
            "w = 0, β": "released, w=0",
            "w = 0.01, raw s": "released, raw weight",
            "w = 0, raw s": "released, raw weight, w=0",
        }
    )


def switches() -> Table:
    return _settings(
        first="changed from the released rule",
        titles={
            "nothing": "released",
            "no mask (`min_probability=0`)": "released, no mask",
            "R not renormalised": "released, not renormalised",
            "sum of probabilities, not logits": "released, sum of probabilities",
            "all three: the printed equations": "paper",
            'scored before it is learned (`order="predict-first"`)': "released, predict first",
        },
    )


def anchors() -> Table:
    return _settings(
        {
            "recursive, w = 0.0001": "released, w=0.0001",
            "recursive, w = 0.001": "released, w=0.001",
            "recursive, w = 0.01": "released",
            "fixed, w = 0.01": "released, fixed anchor",
            "recursive, w = 0.1": "released, w=0.1",
            "fixed, w = 0.1": "released, fixed anchor, w=0.1",
            "recursive, w = 0.3": "released, w=0.3",
            "fixed, w = 0.3": "released, fixed anchor, w=0.3",
        }
    )


def collapse() -> Table:
    settings = [
        ("released rule, w = 0.01, β, float16", "released", "0.01", "saturating", "0.1", "float16"),
        ("w = 0, β, float16", "released", "0.0", "saturating", "0.1", "float16"),
        ("w = 0, raw s, float16", "released", "0.0", "raw", "0.1", "float16"),
        ("w = 0, raw s, float32", "released", "0.0", "raw", "0.1", "float32"),
        ("w = 0.01, raw s, float16", "released", "0.01", "raw", "0.1", "float16"),
        ("w = 0.01, raw s, float32", "released", "0.01", "raw", "0.1", "float32"),
        ("w = 0.01, raw s, float16, no mask", "released", "0.01", "raw", "0.0", "float16"),
        ("printed form with mask, w = 0.01, raw s, float16", "printed", "0.01", "raw", "0.1", "float16"),
        ("printed form with mask, w = 0.01, β, float16", "printed", "0.01", "saturating", "0.1", "float16"),
        ("printed form, no mask, w = 0.01, raw s, float16", "printed", "0.01", "raw", "0.0", "float16"),
        ("printed form, no mask, w = 0.01, β, float16", "printed", "0.01", "saturating", "0.0", "float16"),
        ("printed form, no mask, w = 0.01, raw s, float32", "printed", "0.01", "raw", "0.0", "float32"),
    ]
    keys = ("form", "w", "weight", "mask", "precision")
    lines = [
        [title, *_of_files("collapse", "accuracy", **dict(zip(keys, own, strict=True)))] for title, *own in settings
    ]
    shares = [only("findings-collapse", "samples_of_the_first_class", dataset=file) for file in FILES.values()]
    return [["", *FILES], ["share of the first class", *shares], *lines]


def one_class() -> Table:
    columns = ("dataset", "printed", "first_class", "classes_of_the_printed_share", "classes")
    head = ["split", "printed for raw s", "share of the first class", "classes with the printed share", "classes"]
    return [head, *([row[column] for column in columns] for row in rows("findings-one-class"))]


def text_left() -> Table:
    refreshes = range(1, 7)
    shown = [("recursive", "0.1"), ("recursive", "0.01"), ("recursive", "0.001"), ("fixed", "0.01")]
    toy = one("findings-anchor", classes="1", anchor="recursive", w="0.01")
    real = [one("findings-anchor", dataset=file, anchor=kind, w=w) for kind, w in shown for file in FILES.values()]
    head = ["share of the text anchor after refresh", "anchor", "w", *map(str, refreshes)]
    lines = ([row["dataset"], row["anchor"], row["w"], *(row[f"after_{k}"] for k in refreshes)] for row in (toy, *real))
    return [head, *lines]


def views() -> Table:
    shifts = ("gaussian_noise", "blur", "rotate")
    lines = [[prompts, image] for prompts in ("one prompt", "templates") for image in ("plain", "64 views")]
    for line in lines:
        own = (one("findings-views", prompts=line[0], image=line[1], shift=shift) for shift in shifts)
        line += [f"{row['zero_shot']} → {row['pta']}" for row in own]
    return [["prompts", "image", *shifts], *lines]


def steps() -> Table:
    columns = ("beta_values_in_float16", "beta_at_s_0.1_in_float16")
    lines = [[h, *(only("findings-half", column, h=f"{h}") for column in columns)] for h in ("20", "50", "1000")]
    return [["h", "values of β", "β at s = 0.1"], *lines]


def half() -> Table:
    files = {name: file for name, file in FILES.items() if name != "ImageNet train"}
    every = ("float32 state", "bfloat16 state", "float16 state", "float16 arithmetic")
    few = (every[0], every[-1])

    def lines() -> Iterator[list[str]]:
        for h, precisions in (("20", few), ("50", few), ("1000", every)):
            for stream in ("iid", "dirichlet 0.001"):
                for precision in precisions:
                    own = {"h": h, "stream": stream, "precision": precision}
                    cells = (one("findings-half", dataset=file, **own) for file in files.values())
                    yield [*own.values(), *(f"{row['accuracy']} ({row['median_length_of_p']})" for row in cells)]

    return [["h", "stream", "precision", *files], *lines()]


def poison() -> Table:
    lines = [
        [prefix, method, *_of_files("poison", "accuracy", method=method, prefix=prefix)]
        for method in dict.fromkeys(row["method"] for row in rows("findings-poison"))
        for prefix in ("0", "1", "5", "10", "all")
    ]
    mistakes = _of_files("poison", "confident_mistakes", method="pta", prefix="all")
    return [["prefix", "method", *FILES], *lines, ["number of confident mistakes", "", *mistakes]]


def after_poison() -> Table:
    columns = {
        "the {} after the prefix": "next_{}",
        "the same samples in the plain order": "same_in_plain_order_{}",
        "the same samples, zero-shot": "same_zero_shot_{}",
    }
    lines = [
        [title.format(after), method, *_of_files("poison", column.format(after), method=method, prefix="all")]
        for method in ("pta", "tda")
        for after in (100, 200)
        for title, column in columns.items()
    ]
    return [["after all confident mistakes", "method", *FILES], *lines]


def streams() -> Table:
    def line(stream: str, method: str) -> list[str]:
        found = [_of_files("streams", "accuracy", stream=stream, method=method, lookahead=how) for how in ("no", "yes")]
        with_means = [[*own, f"{fmean(map(float, own)):.2f}"] for own in found[: 1 if method == "clip" else 2]]
        return [stream, method, *map(" / ".join, zip(*with_means, strict=True))]

    kinds = dict.fromkeys((row["stream"], row["method"]) for row in rows("findings-streams"))
    return [["stream", "method", *FILES, "mean"], *(line(*kind) for kind in kinds)]


def gradients() -> Table:
    """The one offline dataset that all of them run on; a method that was not measured is left out."""
    of = {
        "One prompt": ["TPT", "DiffTPT (no diffusion)", "HisTPT"],
        "CLIP's prompts": ["GS-Bias", "DPE (CLIP's prompts)"],
    }
    pixelated = {"dataset": "Fashion, pixelate 4"}

    def ours(table: str, form: str = ".2f", **where: str) -> str:
        return next((written(row["ours"], form) for row in found(table, **where) if row["ours"]), "")

    def speed(method: str) -> str:
        return ours("table4", ".1f", row=method.partition(" (")[0], dataset="of CLIP, %")

    def lines() -> Iterator[list[str]]:
        for prompts, methods in of.items():
            zero_shot = [ours("templates", section=prompts, row=method, **pixelated) for method in ("CLIP", "PTA")]
            yield [prompts, "CLIP", *zero_shot, speed("CLIP")]
            for method in methods:
                own = [ours("orthogonality", section=method, row=row, **pixelated) for row in ("alone", "with PTA")]
                if any(own):
                    yield [prompts, method, *own, speed(method)]

    return [["prompts", "method", "alone", "with PTA", "speed alone, % of CLIP's"], *lines()]


def clouds() -> Table:
    """PTA's gains with their intervals, each severity and source in a line."""
    others = {"ULIP": "zero-shot"} | {f"Point-Cache{how}": f"Point-Cache{how}" for how in ("", ", not prefilled")}

    def gain(row: dict[str, str]) -> str:
        difference, low, high = (written(row[column], ".2f") for column in ("difference", "low", "high"))
        return f"{difference} ({low} to {high})"

    def line(source: str, severity: str) -> list[str]:
        own = [one("clouds", source=source, severity=severity, other=other) for other in others]
        return [source, severity, own[0]["accuracy_pta"], *map(gain, own)]

    kinds = dict.fromkeys((row["source"], row["severity"]) for row in rows("clouds"))
    head = ["clouds", "severity", "PTA", *(f"over {title}" for title in others.values())]
    return [head, *(line(*kind) for kind in kinds)]


def clouds_without_gain() -> Table:
    """Every source, severity and corruption where PTA is not above zero-shot."""
    tables = ("table12", "table13", "table3", "table14", "table15")  # by severity
    sections = {"ModelNet-C": "procedural", "Furniture (ours)": "furniture"}

    def lines() -> Iterator[list[str]]:
        for section, source in sections.items():
            for severity, table in enumerate(tables):
                for row in found(table, section=section, row="ULIP", metric="accuracy"):
                    column = {"section": section, "dataset": row["dataset"], "metric": "accuracy"}
                    pta = one(table, row="PTA", **column)["ours"]
                    if float(pta) <= float(row["ours"]):
                        yield [
                            source,
                            f"{severity}",
                            row["dataset"],
                            *(written(own, ".2f") for own in (row["ours"], pta)),
                        ]

    return [["clouds", "severity", "corruption", "zero-shot", "PTA"], *lines()]


WPTA_DATA = {
    **FILES,
    "all four": "all files",
    "Fashion, 5 shifts": "fashion",
    "procedural clouds": "procedural",
    "furniture clouds": "furniture",
}


def _gain(stream: str, method: str, dataset: str) -> str:
    """The accuracy above PTA's with its interval."""
    row = one("wpta", dataset=dataset, stream=stream, method=method)
    gain, low, high = (written(row[column], "+.2f") for column in ("over_pta", "low", "high"))
    return f"{gain} ({low} to {high})"


def wpta_gains() -> Table:
    """WPTA against PTA, on shuffled streams and on those that are sorted by class."""
    shown = [("iid", "wpta"), ("iid", "wpta, depth 2"), ("separate", "wpta"), ("separate", "wpta without prior")]
    head = ["", "PTA, shuffled", "wpta", "depth 2", "PTA, separate", "wpta", "wpta without prior"]

    def line(title: str, dataset: str) -> list[str]:
        pta = [one("wpta", dataset=dataset, stream=stream, method="pta")["accuracy"] for stream in ("iid", "separate")]
        gains = [_gain(*kind, dataset) for kind in shown]
        return [title, pta[0], *gains[:2], pta[1], *gains[2:]]

    return [head, *(line(*own) for own in WPTA_DATA.items())]


def wpta_streams() -> Table:
    """Accuracies by stream: the mean of the four files, Fashion, and the mean of the clouds."""
    methods = list(dict.fromkeys(row["method"] for row in rows("wpta")))
    sources = {"four files": ["all files"], "Fashion": ["fashion"], "clouds": ["procedural", "furniture"]}

    def cells(datasets: list[str], stream: str) -> list[str]:
        own = {
            method: fmean(
                float(one("wpta", dataset=name, stream=stream, method=method)["accuracy"]) for name in datasets
            )
            for method in methods
        }
        return [f"**{value:.2f}**" if value == max(own.values()) else f"{value:.2f}" for value in own.values()]

    streams = dict.fromkeys(row["stream"] for row in rows("wpta"))
    lines = [[source, stream, *cells(own, stream)] for source, own in sources.items() for stream in streams]
    return [["data", "stream", *methods], *lines]


def shards() -> Table:
    """What shards have learned beside the whole stream."""
    titles = {
        "stream": "stream",
        "prior": "prior",
        "parts": "shards",
        "whole": "whole stream",
        "shards": "shards, added",
    }
    return [[*titles.values()], *([row[column] for column in titles] for row in rows("wpta-shards"))]


def forgetting() -> Table:
    """Each method on shuffled and sorted streams, after junk, and under shifts in turn."""
    methods = dict.fromkeys(row["method"] for row in rows("findings-forgetting"))
    streams = ("shuffled", "separate", "junk first")

    def line(method: str) -> list[str]:
        of_files = [_of_files("forgetting", "accuracy", method=method, stream=stream) for stream in streams]
        shifts = one("findings-forgetting", dataset="fashion", method=method)["accuracy"]
        return [method, *(f"{fmean(map(float, own)):.2f}" for own in of_files), *of_files[-1], shifts]

    heads = [*(f"four files, {stream}" for stream in streams), *(f"{name}, junk first" for name in FILES)]
    return [["", *heads, "Fashion, shifts in turn"], *map(line, methods)]


def demo() -> Table:
    def cell(shift: str, severity: str) -> str:
        seeds = found("demo", shift=shift, severity=severity)
        return " → ".join(f"{fmean(float(row[column]) for row in seeds):.1f}" for column in ("zero_shot", "pta"))

    shifts, severities = (dict.fromkeys(row[column] for row in rows("demo")) for column in ("shift", "severity"))
    head = ["zero-shot → PTA", *(f"severity {one}" if one == "1" else one for one in severities)]
    return [head, *([shift, *(cell(shift, severity) for severity in severities)] for shift in shifts)]
