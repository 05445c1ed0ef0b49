"""Filled tables, made by hand: numbers that a test can know."""

from dataclasses import replace

from pta.measure.reproduce.declaration import Column, Erratum, Experiment, Figure, Row
from pta.measure.reproduce.fill import mark_best
from pta.measure.reproduce.table import NO_GAIN, Cell, Line, Source, Table
from pta.measure.stream import Stream

HOSTILE = "<script>alert(1)</script> & a_b 5 % | ~x^2 {y} $z$ #1 [β–γ ± 1] \\end"
"""Signs that mean something to HTML, Markdown or LaTeX."""

SAMPLES = [100, 150, 200]


def record(dataset, method, seed, accuracy, **params):
    """A record as `Evaluation.record` writes it and a store keeps it."""
    online = {"accuracy": [accuracy - 2, accuracy - 1, accuracy], "zero_shot": [59.0, 60.0, 61.0]}
    return {
        "dataset": dataset,
        "method": method,
        "params": params,
        "seed": seed,
        "stream": {"kind": "iid", "batch": 256, "drop_last": False, "lookahead": False},
        "n": 200,
        "accuracy": accuracy,
        "zero_shot_accuracy": 60.0,
        "seconds": 0.25 * seed,
        "state_bytes": 4096,
        "calibration_error": 3.0 + seed,
        "raw_calibration_error": 8.0 + seed,
        "class_accuracies": [50.0, 90.0],
        "worst_class": {"name": "boot", "accuracy": 49.0 + seed},
        "fixed": 10 * seed,
        "broken": seed,
        "online": {"samples": SAMPLES, **online},
        "samples": 200,
        "made": {
            "key": f"{seed}{method}{dataset}".encode().hex().ljust(64, "0"),
            "features": f"features of {dataset}".encode().hex().ljust(64, "0"),
            "version": "0.1.0+abcdef012345",
            "at": "2026-05-04T03:02:01+00:00",
            "on": "Some CPU; 2 thread(s); torch 2.9",
        },
    }


def source(dataset, method, *accuracies, **params):
    """The records of seeds 1, 2, …"""
    records = tuple(record(dataset, method, seed, one, **params) for seed, one in enumerate(accuracies, 1))
    return Source(dataset, records, prompts="coop", views="crops")


def of_other_data(table):
    """The same table of other data: the paper's numbers may not stand beside ours, but gains may."""

    def shown(cell):
        return cell if cell.is_gain else replace(cell, printed=None, erratum=None, elsewhere=cell.paper)

    lines = tuple(replace(line, cells=tuple(map(shown, line.cells))) for line in table.lines)
    return replace(table, comparable=False, lines=lines)


def one_column(*cells, labels=None, method="pta", **declared):
    """A table of one column, with a row for each cell."""
    rows = tuple(Row(label, method) for label in labels or map(str, range(len(cells))))
    experiment = Experiment("e", "t", (Column(label="A", datasets="a"),), rows, **declared)
    lines = [Line(row, (cell,)) for row, cell in zip(rows, cells, strict=True)]
    return Table(experiment, ("A",), mark_best(lines), True, {})


def paper_table():
    """Data as the paper's: two datasets and their mean, every kind of cell, and labels that attack."""
    clip = Row("CLIP", "clip", printed=(60.0, 70.0, 65.0))
    tpt = Row("TPT", "tpt", section="Training", printed=(66.87, 68.5, 67.69))
    pta = Row("PTA", "pta", section="No training", params={"h": 20.0}, printed=(69.38, 71.0, 70.19), note="As it is.")
    spread = Row("± over seeds", "pta", section="No training", statistic="deviation", params={"h": 20.0})
    hostile = Row(HOSTILE, "pta", section="No training", params={"mode": HOSTILE})
    erratum = Erratum("Training: TPT", "Cars", 68.5, "the row's mean needs another number", 66.87)
    unknown = Erratum("CLIP", "DTD", 60.0, "it is the number of ResNet-50")
    experiment = Experiment(
        "table1",
        "Ten datasets",
        (Column(each="ten"), Column(label="Mean", mean_of=("all",))),
        (clip, tpt, pta, spread, hostile),
        place="Table 1",
        baseline="CLIP",
        note="With & without training.",
        errata=(erratum, unknown),
    )
    of_clip = (source("DTD", "clip", 60.5, 60.5), source("Cars", "clip", 70.0, 70.0))
    of_pta = (source("DTD", "pta", 70.0, 70.24, h=20.0, anchor="recursive"), source("Cars", "pta", 70.9, 71.0, h=9.0))
    of_hostile = (source("DTD", "pta", 50.0, mode=HOSTILE),)

    def cells(ours, printed, sources, errata=(None, None, None), missing=""):
        shares = (sources[:1], sources[1:], sources)
        parts = zip(ours, printed, errata, shares, strict=True)
        return [Cell(one, paper, missing, erratum=wrong, sources=own) for one, paper, wrong, own in parts]

    nothing = (None, None, None)
    awaited = cells(nothing, tpt.printed, (), (None, erratum, None), missing="not yet")
    partial = [Cell(50.0, sources=of_hostile, partial=share) for share in ("", "1 of 2")]
    partial.insert(1, Cell(missing="no data"))
    lines = (
        Line(clip, (*cells((60.5, 70.0, 65.25), clip.printed, of_clip, (unknown, None, None)), NO_GAIN)),
        Line(tpt, (*awaited, Cell(printed=2.69, missing="not yet", is_gain=True))),
        Line(pta, (*cells((70.12, 70.95, 70.535), pta.printed, of_pta), Cell(5.285, 5.19, is_gain=True))),
        Line(spread, (*cells((99.0, 0.07, 99.5), nothing, of_pta), NO_GAIN)),
        Line(hostile, (*partial, Cell(-10.5, 2.0, partial="1 of 2", is_gain=True))),
    )
    about = {"model": "ViT-B/16 <b>", "seeds": "1, 2"}
    absent = {"Cars_196": "no folder <cars>", "Pets": "no folder <cars>"}
    headings = ("DTD", "Cars", "Mean", "gain over CLIP")
    return Table(experiment, headings, mark_best(lines), True, about, ("Prompts are CLIP's.",), absent)


def offline_table():
    """The same with other data."""
    return replace(of_other_data(paper_table()), headings=("fog", "blur", "Mean", "gain over CLIP"))


def wide_table():
    """Names as they come from files and papers, more columns than a phone has room for, and a gain at the end."""
    table = paper_table()
    headings = ("Fashion, contrast 2", "caltech101_test_sub", "ucf101_test_sub_nounproxy", "Average", "gain over CLIP")
    rows = {"CLIP": None, "DiffTPT (no diffusion)": "Backpropagation-based", "PTA": "Backpropagation-free"}
    lines = tuple(
        Line(replace(line.row, label=label, section=section), (*[line.cells[0]] * 3, *line.cells[2:]))
        for line, (label, section) in zip(table.lines, rows.items(), strict=False)
    )
    return replace(table, headings=headings, lines=lines)


def drawn(kind, table=None, **figure):
    """A table with a figure declared."""
    table = table or paper_table()
    return replace(table, experiment=replace(table.experiment, figure=Figure(kind, **figure)))


def over_x():
    """A table over a parameter: two series, one of them with the paper's numbers alone."""
    points = [(series, x) for series in ("pta", "point_cache") for x in (1.0, 10.0, 100.0)]
    rows = [Row(f"{series} at {x}", series, series=series, x=x, stream=Stream()) for series, x in points]
    rows.append(Row("zero-shot", "clip"))
    cells = [Cell(40.0 + at, 41.0 + at) if at < 3 else Cell(printed=30.5 + at, missing="not yet") for at in range(6)]
    cells.append(Cell(35.0, 36.0))
    experiment = Experiment(
        "figure4",
        "Over severity",
        (Column(label="ModelNet-C", datasets="modelnet"),),
        tuple(rows),
        place="Figure 4",
        figure=Figure("lines", x="severity", columns=("ModelNet-C",), log_x=True),
    )
    lines = tuple(Line(row, (cell,)) for row, cell in zip(rows, cells, strict=True))
    return Table(experiment, ("ModelNet-C",), mark_best(lines), True, {"model": "ViT"})
