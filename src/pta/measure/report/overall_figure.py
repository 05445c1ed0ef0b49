"""Comparisons over several sets as a drawing: mean differences with their intervals, and the difference on each set."""

from collections.abc import Sequence
from pathlib import Path

from pta.door.safe_text import printable
from pta.measure.overall import Overall
from pta.measure.report.figures import write_figure

_WIDTH, _EDGE, _ROW = 6.4, 1.1, 0.32  # inches
_COLOURS = {"A": "#d55e00", "B": "#0072b2", None: "0.35"}


def draw_overall(path: Path, compared: Sequence[Overall]) -> None:
    """Write the figure: a row for each comparison, the largest difference on top."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = sorted(compared, key=lambda one: one.difference)
    is_one_baseline = len({one.labels[0] for one in rows}) == 1
    names = [one.labels[1] if is_one_baseline else f"{one.labels[1]} against {one.labels[0]}" for one in rows]
    with rc_context({"svg.hashsalt": "pta", "text.parse_math": False}):
        figure = Figure(figsize=(_WIDTH, _EDGE + _ROW * len(rows)), layout="constrained")
        panel = figure.subplots()
        panel.axvline(0, color="0.4", linestyle="--", linewidth=1)
        for at, one in enumerate(rows):
            panel.plot([own.difference for own in one.by_set], [at] * len(one.by_set), "o", color="0.7", markersize=3)
            colour = _COLOURS[one.better]
            panel.plot(one.interval, [at, at], color=colour, marker="|", markersize=7, linewidth=2)
            panel.plot([one.difference], [at], "D", color=colour, markersize=5)
        panel.set_yticks(range(len(rows)), [printable(name) for name in names])
        panel.set_ylim(-0.6, len(rows) - 0.4)
        panel.grid(axis="x", alpha=0.25)
        over = f"over {printable(rows[0].labels[0])}" if is_one_baseline else "of the accuracies"
        panel.set_xlabel(f"difference {over} in points: mean, {100 * rows[0].resampling.level:g} %, each set")
        write_figure(path, figure)
