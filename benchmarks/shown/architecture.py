"""docs/architecture.md."""

from shown.results import Table, one, written


def engines() -> Table:
    sizes = ("10", "100", "1000", "21841")

    def cell(engine: str, size: str) -> str:
        row = one("engine-cpu", implementation=engine, C=size, d="512", B="256")
        return written(row["cost_in_zero_shot_products"], ".2f")

    engines = ("per-sample loop", "step", "chunk", "chunk, compiled")
    lines = [[engine, *(cell(engine, size) for size in sizes)] for engine in engines]
    return [["in zero-shot products", *(f"C = {int(size):,}" for size in sizes)], *lines]
