"""A sweep as a figure: accuracy against the first parameter, a line for each setting of the others."""

import io
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pta.door.files import write_atomically
from pta.door.safe_text import printable
from pta.errors import InvalidParameter
from pta.measure.contenders import as_given
from pta.measure.report.figures import require_matplotlib
from pta.measure.sweep import Grid, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS = (".svg", ".png", ".pdf")

_LOGARITHMIC = 30  # times the smallest value, from where a linear axis would crowd the small ones
_WIDTH, _HEIGHT = 4.2, 3.4  # inches of a panel
# equal results give equal files
_NO_DATE: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}


def require_figure(path: Path) -> None:
    """Refuse a figure that could not be drawn, before any work is done for it."""
    if path.suffix not in ENDINGS:
        raise InvalidParameter(f"--plot {path}: a figure ends in {', '.join(ENDINGS)}")
    require_matplotlib()


def draw(path: Path, grid: Grid, swept: Mapping[str, Sequence[Point]]) -> None:
    """Write the figure: a panel for each dataset, zero-shot dashed."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "pta"}):
        figure = Figure(figsize=(_WIDTH * len(swept), _HEIGHT), layout="constrained")
        panels = figure.subplots(1, len(swept), squeeze=False)[0]
        for panel, (dataset, points) in zip(panels, swept.items(), strict=True):
            _draw_panel(panel, grid, points)
            panel.set_title(printable(dataset), parse_math=False)
        panels[0].set_ylabel("accuracy in %")
        panels[-1].legend(fontsize="small")
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:], dpi=150, metadata=_NO_DATE[path.suffix])
    write_atomically(path, content.getvalue())


def _draw_panel(panel: "Axes", grid: Grid, points: Sequence[Point]) -> None:
    first = next(iter(grid.values))
    values = list(grid.values[first])
    are_numbers = all(isinstance(value, Real) and not isinstance(value, bool) for value in values)
    positions = {as_given(value): float(value) if are_numbers else float(at) for at, value in enumerate(values)}
    for label, line in _lines(first, points).items():
        line.sort(key=lambda point: positions[as_given(point.setting[first])])
        at = [positions[as_given(point.setting[first])] for point in line]
        panel.errorbar(
            at,
            [point.accuracy for point in line],
            yerr=[point.deviation or 0.0 for point in line],
            marker="o",
            markersize=4,
            capsize=2,
            label=label or grid.method,
        )
    panel.axhline(points[0].zero_shot, linestyle="--", color="0.4", label="zero-shot")
    panel.set_xlabel(f"{grid.method}.{first}")
    if not are_numbers:
        panel.set_xticks(list(positions.values()), [as_given(value) for value in values])
    elif min(values) > 0 and max(values) >= _LOGARITHMIC * min(values):
        panel.set_xscale("log")


def _lines(first: str, points: Sequence[Point]) -> dict[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for point in points:
        others = [f"{name}={as_given(value)}" for name, value in point.setting.items() if name != first]
        lines.setdefault(", ".join(others), []).append(point)
    return lines
