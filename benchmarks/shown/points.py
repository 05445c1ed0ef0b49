"""docs/points.md."""

from shown.results import Table, one, rows, written


def speed() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        compared = written(row["ratio"], ",.4f" if float(row["ratio"]) < 0.1 else ",.2f")
        met = "yes" if row["met"] == "True" else "**no**"
        return [row["what"], written(row["milliseconds"], ",.1f"), row["compared_with"], compared, row["goal"], met]

    head = ["what", "milliseconds", "compared with", "ratio", "goal", "met"]
    return [head, *map(line, rows("points-cpu"))]


def speed_gpu() -> Table:
    ways = ("ULIP", "ULIP with PTA", "farthest points")
    settings = dict.fromkeys((row["dtype"], row["batch"]) for row in rows("points-gpu"))

    def cell(way: str, dtype: str, batch: str) -> str:
        return written(one("points-gpu", what=way, dtype=dtype, batch=batch)["clouds_per_second"], ",.0f")

    head = ["", "batch", *ways[:2], "its farthest points alone"]
    return [head, *([dtype, batch, *(cell(way, dtype, batch) for way in ways)] for dtype, batch in settings)]
