"""docs/performance.md."""

from collections import defaultdict

from shown.results import Table, found, one, rows, written

MODELS = ("ViT-B/16", "RN50")
KINDS = {  # of kernels, by parts of their names
    "matrix products": ("nvjet", "gemm", "gemvx"),
    "attention": ("sdpa",),
    "layer norms and residuals": ("layer_norm",),
    "QuickGELU": ("mul_sigmoid",),
    "PTA's own kernels": ("step", "score_rested"),
}


def _run(model: str, batch: str, classes: str, method: str, way: str = "ours") -> dict[str, str]:
    return one("gpu", model=f"{model}, random weights", batch=batch, classes=classes, method=method, way=way)


def speed() -> Table:
    def line(model: str, batch: str) -> list[str]:
        ours, plain = (
            {method: _run(model, batch, "1000", method, way) for method in ("clip", "pta", "tda")}
            for way in ("ours", "naive")
        )
        return [
            model,
            batch,
            *(written(ours[method]["images_per_second"], ",.0f") for method in ("clip", "pta")),
            *(written(ours[method]["of_clip"], ".1%") for method in ("pta", "tda")),
            *(written(row["images_per_second"], ",.0f") for row in plain.values()),
        ]

    head = ["", "batch", "CLIP", "PTA", "PTA / CLIP", "TDA / CLIP", "plain CLIP", "plain PTA", "plain TDA"]
    return [head, *(line(model, batch) for model in MODELS for batch in ("1", "32", "256"))]


def classes() -> Table:
    def line(count: str, batch: str) -> list[str]:
        clip, pta = (_run("ViT-B/16", batch, count, method) for method in ("clip", "pta"))
        memory = written(pta["over_clip_mib"], ".0f")
        steps = (written(row["step_us"], ".1f") for row in (clip, pta))
        return [f"{int(count):,}", batch, written(pta["of_clip"], ".1%"), *steps, pta["touches"], memory]

    head = ["classes", "batch", "share of CLIP's speed", "zero-shot, µs per batch", "PTA's step, µs per batch"]
    lines = [line(count, batch) for batch in ("1", "256") for count in ("10", "100", "1000", "21841")]
    return [[*head, "classes updated per sample", "MiB in addition to CLIP's"], *lines]


def profile() -> Table:
    spent: dict[str, dict[str, float]] = {"1": defaultdict(float), "256": defaultdict(float)}
    for row in rows("gpu-profile"):
        kinds = [kind for kind, parts in KINDS.items() if any(part in row["kernel"] for part in parts)]
        spent[row["batch"]][kinds[0] if kinds else "others"] += float(row["us"])

    def cells(kind: str) -> list[str]:
        return [f"{own[kind]:,.0f} ({own[kind] / sum(own.values()):.1%})".replace("%", " %") for own in spent.values()]

    return [["µs", "one image", "batch of 256"], *([kind, *cells(kind)] for kind in (*KINDS, "others"))]


def forms() -> Table:
    batches = ("1", "2", "4", "8", "16", "32")

    def cell(classes: str, batch: str) -> str:
        row = one("gpu-forms", classes=classes, batch=batch)
        return f"{row['steps_us']} / {row['batch_us']}"

    lines = [[f"C = {count}", *(cell(count, batch) for batch in batches)] for count in ("10", "100", "1000")]
    return [
        ["µs as steps / as a batch", *(f"{batch} samples" if batch != "1" else "1 sample" for batch in batches)],
        *lines,
    ]


def others() -> Table:
    tda = [_run("ViT-B/16", batch, "1000", "tda") for batch in ("1", "32")]
    found = defaultdict(list, {"tda": tda})
    for row in rows("gpu-methods"):
        found[row["method"]].append(row)

    def line(method: str) -> list[str]:
        speeds = (written(row["images_per_second"], ",.0f") for row in found[method])
        shares = (written(row["of_clip"], ".0%") for row in found[method])
        return [f"`{method}`", *(cell for pair in zip(speeds, shares, strict=True) for cell in pair)]

    return [["method", "images/s, one at a time", "of CLIP", "images/s, batches of 32", "of CLIP"], *map(line, found)]


def wpta() -> Table:
    def cells(row: dict[str, str]) -> list[str]:
        times = (row[name] or "–" for name in ("step_us", "refresh_us"))
        return [written(row["images_per_second"], ",.0f"), written(row["of_clip"], ".1%"), *times]

    lines = [[row["method"], row["batch"], *cells(row)] for row in rows("gpu-wpta")]
    return [["", "batch", "images/s", "of CLIP", "step, µs", "refresh, µs"], *lines]


def inverses() -> Table:
    def line(way: str) -> list[str]:
        each = found("gpu-inverses", way=way)
        return [way, f"{float(each[0]['us']):.0f}", *(row["error"] for row in each)]

    ways = dict.fromkeys(row["way"] for row in rows("gpu-inverses"))
    samples = dict.fromkeys(row["samples"] for row in rows("gpu-inverses"))
    return [["", "µs", *(f"error after {int(count):,} samples" for count in samples)], *map(line, ways)]


def sources() -> Table:
    def cell(pixels: str, batch: str) -> str:
        own, ready = (
            float(one("gpu-sources", batch=batch, pixels=kind)["images_per_second"]) for kind in (pixels, READY)
        )
        return f"{own:,.0f} ({own / ready:.0%})".replace("%", " %")

    kinds = dict.fromkeys(row["pixels"] for row in rows("gpu-sources"))
    return [
        ["pixels", "images/s, one at a time", "batches of 256"],
        *([kind, cell(kind, "1"), cell(kind, "256")] for kind in kinds),
    ]


def tpt() -> Table:
    return _tpt("prompts-cpu")


def tpt_gpu() -> Table:
    return _tpt("prompts-gpu")


def _tpt(name: str) -> Table:
    measured = found(name, method="tpt", setting="64 views")
    counts = dict.fromkeys(row["classes"] for row in measured)

    def cell(way: str, classes: str) -> str:
        row = one(name, method="tpt", setting="64 views", way=way, classes=classes)
        made = f"; {float(row['seconds_once']):,.0f} s of preparation" if row["seconds_once"] else ""
        return f"{written(row['ms_per_sample'], ',.0f')} ({row['times_as_fast']}×{made})"

    head = ["ms per image (speed-up over the first line)", *(f"{int(count):,} classes" for count in counts)]
    ways = dict.fromkeys(row["way"] for row in measured)
    return [head, *([way, *(cell(way, count) for count in counts)] for way in ways)]


def tpt_memory() -> Table:
    measured = [row for row in rows("prompts-gpu") if row["peak_gib"]]
    batches = dict.fromkeys(row["batch"] for row in measured)

    def line(setting: str) -> list[str]:
        peaks = (one("prompts-gpu", setting=setting, batch=batch)["peak_gib"] for batch in batches)
        return [f"`{setting}`", *(written(peak, ".2f") for peak in peaks)]

    head = ["peak GiB", *(f"batch of {batch}" for batch in batches)]
    return [head, *map(line, dict.fromkeys(row["setting"] for row in measured))]


def closed_forms() -> Table:
    return _closed_forms("prompts-cpu")


def closed_forms_gpu() -> Table:
    return _closed_forms("prompts-gpu")


def table4() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        speeds = (written(row[name], ".1%") for name in ("of_clip", "papers_of_clip"))
        memory = (f"{row[name]}×" for name in ("memory_of_clip", "papers_memory_of_clip"))
        return [row["row"], row["images_per_second"], *speeds, row["memory_mib"], *memory]

    head = ["method", "images/s", "of CLIP", "in the paper", "MiB", "of CLIP", "in the paper"]
    return [head, *map(line, rows("table4-gpu"))]


def _closed_forms(name: str) -> Table:
    def line(method: str, classes: str, setting: str) -> list[str]:
        loop, ours, products = (
            one(name, method=method, classes=classes, setting=setting, way=way)
            for way in ("loop", "ours", "its matrix products alone")
        )
        times = (written(row["ms_per_sample"], ".3g") for row in (loop, ours, products))
        return [f"`{method}`", f"{int(classes):,}", setting, *times, f"{ours['times_as_fast']}×"]

    kinds = dict.fromkeys((row["method"], row["classes"], row["setting"]) for row in rows(name))
    head = ["method", "classes", "", "loop, ms per sample", "ours", "its matrix products alone", "ratio"]
    return [head, *(line(*kind) for kind in kinds if kind[0] != "tpt")]


READY = "ready on the device"


def decoders() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        rates = ("decoded_per_second", "megapixels_per_second", "resized_per_second", "both_per_second")
        return [
            f"{row['decoder']}, {row['files']}",
            *(written(row[rate], ",.0f") for rate in rates),
            *(row[name] for name in ("prepare_us", "mean_distance", "largest_distance", "equal", "least_cosine")),
        ]

    speeds = ["", "decoded/s", "megapixels/s", "resized/s", "both/s", "marker scan on the host, µs per file"]
    distances = ["mean distance of bytes", "largest", "share of equal bytes", "smallest cosine of features"]
    return [speeds + distances, *map(line, rows("decoders-gpu"))]


def files() -> Table:
    def line(predict: dict[str, str]) -> list[str]:
        of = {name: predict[name] for name in ("model", "sizes", "way")}
        by = {row["command"]: row for row in found("files-gpu", **of)}
        both = [by.get(command, {}) for command in ("predict", "extract")]
        speeds = [
            " / ".join(written(row[name], ",.0f") for name in ("images_per_second", "second_half") if row and row[name])
            for row in both
        ]
        alone = one("files-gpu", model=of["model"], way="model alone, ready tensors")["images_per_second"]
        share = written(float(predict["second_half"] or predict["images_per_second"]) / float(alone), ".0%")
        host = written(predict["host_cpu_share"], ".0%")
        what = f"{of['model']}, {of['sizes'].replace('0x', '0×')}: {of['way']}"
        return [what, *speeds, share, written(predict["megapixels_per_second"], ",.0f"), host, predict["gpu_gib"]]

    head = ["", "`predict`, images/s: whole / second half", "`extract`", "share of the model alone"]
    measured = [row for row in rows("files-gpu") if row["command"] == "predict"]
    return [[*head, "megapixels/s", "share of the host's cores", "GiB on the GPU"], *map(line, measured)]


def files_latency() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        return [f"{row['way']}, {row['program']}", row["p50_ms"], row["p99_ms"], row["first_row_s"]]

    head = ["", "p50, ms", "p99, ms", "first row of `predict`, s"]
    return [head, *map(line, rows("files-latency"))]


def cpu_summary() -> Table:
    names = {
        "the zero-shot product F·Tᵀ alone": "zero-shot product",
        "PTA, one sample at a time on whole tensors": "per-sample loop",
        "PTA, single-sample step": "step",
        "PTA, chunks, without numba": "chunk",
        "PTA, chunks, compiled by numba": "chunk, compiled",
    }

    def line(title: str, name: str) -> list[str]:
        row = one("engine-cpu", implementation=name, C="1000", d="512", B="256")
        faster = "" if name == "zero-shot product" else written(row["speedup_over_loop"], ".1f") + "×"
        cost = written(row["cost_in_zero_shot_products"], ".2f")
        return [title, written(row["us_per_sample"], ",.1f"), faster, cost, f"{float(row['peak_bytes']) / 1e6:.1f} MB"]

    head = ["", "µs per sample", "speed-up over the loop", "cost relative to zero-shot", "peak memory"]
    return [head, *(line(*each) for each in names.items())]


def gpu_summary() -> Table:
    def line(title: str, batch: str) -> list[str]:
        own = {"model": "ViT-B/16, random weights", "classes": "1000", "batch": batch}
        clip, pta = (one("gpu", method=method, way="ours", **own) for method in ("clip", "pta"))
        plain = one("gpu", method="pta", way="naive", **own)
        speeds = (written(row["images_per_second"], ",.0f") for row in (clip, pta, plain))
        return [title, *speeds, written(pta["of_clip"], ".1%")]

    head = ["", "CLIP", "PTA", "PTA, plain", "PTA's share of CLIP's speed"]
    return [head, line("one at a time", "1"), line("batches of 256", "256")]
