"""docs/cluster.md."""

from shown.results import Table, rows, written


def exact() -> Table:
    columns = ("rule", "samples", "L", "rounds", "rows_repaired", "delta_R", "delta_logit", "changed")
    head = ["rule", "samples", "tail L", "rounds", "rows repaired", "largest ΔR", "largest Δlogit", "labels changed"]
    return [head, *([row[name].replace("-", "−") for name in columns] for row in rows("segments-exact"))]


def passes() -> Table:
    def line(row: dict[str, str]) -> list[str]:
        return [row["part"], row["processes"], written(row["work_seconds"], ",.4f"), row["work"], row["changed"]]

    return [
        ["", "processes", "processor seconds", "in single streams", "labels changed"],
        *map(line, rows("cluster-scaling")),
    ]


def simulated() -> Table:
    columns = ("encode", "summarise", "scan", "replay", "repair")

    def line(row: dict[str, str]) -> list[str]:
        overlap = "as soon as possible" if row["overlap"] == "True" else "one after the other"
        seconds = [written(row[f"{name}_seconds"], ",.1f") for name in columns]
        return [f"{int(row['block']):,}", row["scan"], overlap, *seconds, row["efficiency"], row["dominates"]]

    return [["block", "scan", "passes", *columns, "efficiency", "most time"], *map(line, rows("cluster-simulated"))]
