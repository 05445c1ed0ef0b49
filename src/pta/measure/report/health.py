"""The health of a stream as one figure: what a monitor measured, with its reference, and the alarms."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pta.door.files import write_atomically
from pta.errors import InvalidParameter
from pta.monitor import Alarm

_PANELS = {
    "zero_shot_confidence": "mean zero-shot confidence",
    "top_cosine": "mean top cosine",
    "changed": "share of changed answers",
    "answer_entropy_ratio": "entropy of the mean answer / zero-shot's",
    "order": "order statistic (sorted above 1.7)",
}
_SUFFIXES = (".svg", ".png", ".pdf")


def require_figure(path: Path) -> None:
    """Refuse a file that a figure cannot be written to."""
    if path.suffix not in _SUFFIXES:
        raise InvalidParameter(f"--figure {path}: the file must end in {', '.join(_SUFFIXES)}")


def draw_health(
    path: Path,
    blocks: Sequence[Mapping[str, Any]],
    alarms: Sequence[Alarm],
    bands: Mapping[str, tuple[float, float]] | None,
) -> None:
    """A panel per number over the samples of the stream, the reference as a band, and alarms as marks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 9), layout="constrained")
    panels = figure.subplots(len(_PANELS), 1, sharex=True)
    positions = [block["position"] for block in blocks]
    for axes, (name, title) in zip(panels, _PANELS.items(), strict=True):
        axes.plot(positions, [block[name] for block in blocks], color="#0072b2", linewidth=1.5)
        if bands and name in bands:
            axes.axhspan(*bands[name], color="#8b929a", alpha=0.25, linewidth=0, label="reference")
            axes.legend(frameon=False, loc="lower right")
        axes.set_title(title, loc="left", fontsize=10)
        axes.grid(alpha=0.25)
        for alarm in alarms:
            colour, style = ("#d55e00", "-") if alarm.raised else ("#009e73", ":")
            axes.axvline(alarm.position, color=colour, linestyle=style, linewidth=1)
    top = panels[0].get_ylim()[1]
    for alarm in alarms:
        if alarm.raised:
            panels[0].text(alarm.position, top, f" {alarm.kind}", color="#d55e00", fontsize=8, va="top", rotation=90)
    panels[-1].set_xlabel("samples")
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:])
    write_atomically(path, content.getvalue())
