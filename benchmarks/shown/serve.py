"""docs/serve.md."""

from shown.results import Table, rows, written


def latency() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        numbers = (
            written(row["answers_per_second"], ",.0f"),
            row["p50_ms"],
            row["p99_ms"],
            f"{row['of_bound']} ({row['least']} to {row['most']})" if row["of_bound"] else "–",
            row["goal"] or "–",
        )
        return [row["input"], row["method"], row["journal"], row["clients"], *numbers]

    head = ["input", "method", "journal", "clients", "answers/s", "p50, ms", "p99, ms", "of the bound", "goal"]
    return [head, *(line(row) for row in rows("serve-latency") if not row["cpu_ms_beyond_step"])]


def journal() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        return [row["what"], f"{float(row['value']):,} {row['unit']}".replace(".0 ", " "), row["goal"] or "–"]

    return [["", "measured", "goal"], *map(line, rows("serve-journal"))]
