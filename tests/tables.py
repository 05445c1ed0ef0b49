"""Filled tables, made by hand: numbers that a test can know."""

from dataclasses import replace

from pta.evaluation.stream import Stream
from pta.reproduction.declaration import Column, Erratum, Experiment, Figure, Row
from pta.reproduction.table import Cell, Line, Source, Table

HOSTILE = "<script>alert(1)</script> & a_b 5 % | ~x^2 {y} $z$ #1 [β–γ ± 1] \\end"
"""Signs that mean something to HTML, Markdown or LaTeX."""

SAMPLES = [100, 150, 200]


def record(dataset, method, seed, accuracy, **params):
    """A record as `Evaluation.record` writes it and a store keeps it."""
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
        "class_accuracies": [50.0, 90.0],
        "worst_class": {"name": "boot", "accuracy": 49.0 + seed},
        "fixed": 10 * seed,
        "broken": seed,
        "online": {
            "samples": SAMPLES,
            "accuracy": [accuracy - 2, accuracy - 1, accuracy],
            "zero_shot": [59.0, 60.0, 61.0],
        },
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


def paper_table():
    """Data as the paper's: two datasets and their mean, every kind of cell, and labels that attack."""
    columns = (Column(each="ten"), Column(label="Mean", mean_of=("all",)))
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
        columns,
        (clip, tpt, pta, spread, hostile),
        place="Table 1",
        baseline="CLIP",
        note="With & without training.",
        errata=(erratum, unknown),
    )
    ours = {
        "CLIP": (source("DTD", "clip", 60.5, 60.5), source("Cars", "clip", 70.0, 70.0)),
        "PTA": (
            source("DTD", "pta", 70.0, 70.24, h=20.0, anchor="recursive"),
            source("Cars", "pta", 70.9, 71.0, h=9.0),
        ),
        "hostile": (source("DTD", "pta", 50.0, mode=HOSTILE),),
    }
    lines = (
        Line(
            clip,
            (
                Cell(60.5, 60.0, erratum=unknown, sources=ours["CLIP"][:1]),
                Cell(70.0, 70.0, sources=ours["CLIP"][1:]),
                Cell(65.25, 65.0, sources=ours["CLIP"]),
            ),
        ),
        Line(
            tpt,
            (
                Cell(printed=66.87, missing="not yet"),
                Cell(printed=68.5, missing="not yet", erratum=erratum),
                Cell(printed=67.69, missing="not yet"),
            ),
            Cell(printed=2.69, missing="not yet"),
        ),
        Line(
            pta,
            (
                Cell(70.12, 69.38, sources=ours["PTA"][:1]),
                Cell(70.95, 71.0, sources=ours["PTA"][1:]),
                Cell(70.535, 70.19, sources=ours["PTA"]),
            ),
            Cell(5.285, 5.19),
        ),
        Line(
            spread,
            (Cell(99.0, sources=ours["PTA"][:1]), Cell(0.07, sources=ours["PTA"][1:]), Cell(99.5, sources=ours["PTA"])),
        ),
        Line(
            hostile,
            (
                Cell(50.0, sources=ours["hostile"]),
                Cell(missing="no data"),
                Cell(50.0, partial="1 of 2", sources=ours["hostile"]),
            ),
            Cell(-10.5, partial="1 of 2"),
        ),
    )
    return Table(
        experiment,
        ("DTD", "Cars", "Mean"),
        lines,
        comparable=True,
        about={"model": "ViT-B/16 <b>", "seeds": [1, 2]},
        notes=("Prompts are CLIP's.",),
        absent={"Cars_196": "no folder <cars>", "Pets": "no folder <cars>"},
    )


def offline_table():
    """The same with other data: the paper's numbers may not stand beside ours."""
    table = paper_table()
    return replace(table, comparable=False, headings=("fog", "blur", "Mean"))


def drawn(kind, table=None, **figure):
    """A table with a figure declared."""
    table = table or paper_table()
    return replace(table, experiment=replace(table.experiment, figure=Figure(kind, **figure)))


def over_x(comparable=True):
    """A table over a parameter: two series, one of them with the paper's numbers alone."""
    rows = [
        Row(f"{series} at {x}", series, series=series, x=x, stream=Stream())
        for series in ("pta", "point_cache")
        for x in (1.0, 10.0, 100.0)
    ]
    cells = [Cell(40.0 + at, 41.0 + at) if at < 3 else Cell(printed=30.5 + at, missing="not yet") for at in range(6)]
    base = Row("zero-shot", "clip")
    lines = [Line(row, (cell,)) for row, cell in zip(rows, cells, strict=True)]
    experiment = Experiment(
        "figure4",
        "Over severity",
        (Column(label="ModelNet-C", datasets="modelnet"),),
        (*rows, base),
        place="Figure 4",
        figure=Figure("lines", x="severity", columns=("ModelNet-C",), log_x=True),
    )
    heading = "ModelNet-C" if comparable else "shifts"
    return Table(experiment, (heading,), (*lines, Line(base, (Cell(35.0, 36.0),))), comparable, {"model": "ViT"})
