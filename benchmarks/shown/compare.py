"""docs/compare.md."""

from shown.results import Table, rows, written


def methods() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        sides = (f"{row[side]} {row[f'accuracy_{side}']}" for side in "ab")
        interval = f"{written(row['low'], '.2f')} to {written(row['high'], '.2f')}"
        counts = (written(row[count], "g") for count in ("fixed", "broken"))
        return [
            row["dataset"],
            *sides,
            written(row["difference"], ".2f"),
            interval,
            *counts,
            row["verdict"].split(":")[0].split(" by")[0],
        ]

    head = ["dataset", "A", "B", "difference", "95 %", "fixed", "broken", "verdict"]
    return [head, *(line(row) for row in rows("compare") if row["a"] == "tda")]


def sweep() -> Table:
    best = max(float(row["accuracy"]) for row in rows("sweep"))

    def cell(row: dict[str, str]) -> str:
        accuracy, deviation = float(row["accuracy"]), float(row["deviation"])
        return f"{'* ' if accuracy == best else ''}{accuracy:.2f} ± {deviation:.2f} ({float(row['gain']):+.2f})"

    weights = dict.fromkeys(row["w"] for row in rows("sweep"))
    cells = {(row["h"], row["w"]): cell(row) for row in rows("sweep")}
    lines = [[h, *(cells[h, w] for w in weights)] for h in dict.fromkeys(row["h"] for row in rows("sweep"))]
    return [["h ╲ w", *weights], *lines]
