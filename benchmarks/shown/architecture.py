"""docs/architecture.md."""

from shown.results import Table, one, written


def engines() -> Table:
    sizes = ("10", "100", "1000", "21841")

    def cell(engine: str, size: str) -> str:
        row = one("engine-cpu", implementation=engine, C=size, d="512", B="256")
        return written(row["cost_in_zero_shot_products"], ".2f")

    engines = ("per-sample loop", "step", "chunk", "chunk, compiled")
    lines = [[engine, *(cell(engine, size) for size in sizes)] for engine in engines]
    return [["cost relative to zero-shot", *(f"C = {int(size):,}" for size in sizes)], *lines]


def one_sample() -> Table:
    sizes = ("10", "100", "1000", "21841")

    def cell(way: str, size: str) -> str:
        row = one("one-sample-cpu", way=way, C=size, d="512")
        faster = f" ({written(row['speedup_over_step'], '.1f')}×)" if way == "step, compiled" else ""
        return written(row["us"], ",.0f") + faster

    names = {"f·Tᵀ and f·Rᵀ alone": "two products", "step": "step", "step, compiled": "step, compiled"}
    lines = [[title, *(cell(way, size) for size in sizes)] for title, way in names.items()]
    return [["µs (speed-up over `step`)", *(f"C = {int(size):,}" for size in sizes)], *lines]
