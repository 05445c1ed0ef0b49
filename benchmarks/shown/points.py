"""docs/points.md."""

from shown.results import Table, rows, written


def speed() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        compared = written(row["ratio"], ",.4f" if float(row["ratio"]) < 0.1 else ",.2f")
        met = "yes" if row["met"] == "True" else "**no**"
        return [row["what"], written(row["milliseconds"], ",.1f"), row["compared_with"], compared, row["goal"], met]

    head = ["what", "milliseconds", "beside", "ratio", "goal", "met"]
    return [head, *map(line, rows("points-cpu"))]
