"""README.md."""

from shown.results import Table, one, written


def engines() -> Table:
    names = {
        "the zero-shot product F·Tᵀ alone": "zero-shot product",
        "PTA, one sample at a time on whole tensors": "per-sample loop",
        "PTA, single-sample step": "step",
        "PTA, chunks": "chunk",
        "PTA, chunks, with the extra `fast`": "chunk, compiled",
    }

    def line(title: str, name: str) -> list[str]:
        row = one("engine-cpu", implementation=name, C="1000", d="512", B="256")
        faster = "" if name == "zero-shot product" else written(row["speedup_over_loop"], ".1f") + "×"
        cost = written(row["cost_in_zero_shot_products"], ".2f")
        return [title, written(row["us_per_sample"], ",.1f"), faster, cost, f"{float(row['peak_bytes']) / 1e6:.1f} MB"]

    head = ["", "µs per sample", "faster than the loop", "in zero-shot products", "peak memory"]
    return [head, *(line(*each) for each in names.items())]


def gpu() -> Table:
    def line(title: str, batch: str) -> list[str]:
        own = {"model": "ViT-B/16, random weights", "classes": "1000", "batch": batch}
        clip, pta = (one("gpu", method=method, way="ours", **own) for method in ("clip", "pta"))
        plain = one("gpu", method="pta", way="naive", **own)
        speeds = (written(row["images_per_second"], ",.0f") for row in (clip, pta, plain))
        return [title, *speeds, written(pta["of_clip"], ".1%")]

    head = ["", "CLIP", "PTA", "PTA in plain code", "PTA's share of CLIP's speed"]
    return [head, line("one at a time", "1"), line("batches of 256", "256")]
