"""Accuracy against speed, one image at a time and in batches of 256: the tables of gpu.py as a picture.

    python benchmarks/gpu_figure.py      reads benchmarks/results, writes docs/images/speed.svg

The axes are two measurements: speed with random weights, accuracy on stored features of a smaller model.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
from fill_tables import ROOT, rows
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.ticker import LogLocator, StrMethodFormatter
from matplotlib.transforms import Bbox

MODEL, CLASSES, DATASET = "ViT-B/16, random weights", "1000", "imagenet_train_7shot"
PANELS = {"1": "one image at a time", "256": "batches of 256"}
NAMES = {"onzeta": "OnZeta"}
GREY = "#444444"
LOOKS = {"clip": ("s", GREY), "pta": ("o", "#0072B2"), "tda": ("D", "#D55E00")}
OTHERS_LOOK = ("o", "#777777")
PLACES = [(-7, 0), (7, 0), (-3, 8), (3, 8), (-3, -8), (3, -8), (-3, 12), (3, 12), (-3, -12), (3, -12)]  # best first
ROOM = 56  # for the labels of the fastest, in points
STYLE = {
    "figure.dpi": 72,  # a pixel is a point
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "lines.markersize": 7,
    "lines.linewidth": 0.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "speed",
}
CAPTION = """\
Speed: {model}, half precision, {classes} classes, pixels ready on one {gpu}; percentages are shares of CLIP's speed.
Accuracy, from another measurement: stored ViT-B/32 features of ImageNet training images, 7 per class;
mean and deviation (bars) over {orders} orders of the stream."""
Rows = dict[str, dict[str, str]]


def read(name: str, **wanted: str) -> Rows:
    """The rows of a table that hold the wanted values, by method."""
    return {row["method"]: row for row in rows(name) if wanted.items() <= row.items()}


def draw(ax: Axes, ours: Rows, naive: Rows, quality: Rows) -> None:
    """Filled and hollow markers, a line between the two of a method, and a bar for the deviation of its accuracy."""
    for method, row in ours.items():
        marker, colour = LOOKS.get(method, OTHERS_LOOK)
        x = float(row["images_per_second"])
        y, deviation = (float(quality[method][column]) for column in ("accuracy", "deviation"))
        ax.plot([x, x], [y - deviation, y + deviation], color=colour)
        if method in naive:
            slow = float(naive[method]["images_per_second"])
            ax.plot([slow, x], [y, y], color=colour)
            ax.plot(slow, y, marker, color=colour, markerfacecolor="white")
        ax.plot(x, y, marker, color=colour, markeredgecolor="white")
    ax.set(xscale="log", xlabel="images per second, random weights")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="#eeeeee")
    low, high = ax.get_xlim()
    ax.set_xlim(right=high * (high / low) ** (ROOM / (ax.get_window_extent().width - ROOM)))


def label(ax: Axes, ours: Rows, quality: Rows) -> None:
    """Name the filled markers, each where the least is in the way."""
    taken = [line.get_window_extent() for line in ax.lines]
    for method, row in ours.items():
        text = ax.annotate(
            f"{NAMES.get(method, method.upper())} {float(row['of_clip']):.0%}",
            (float(row["images_per_second"]), float(quality[method]["accuracy"])),
            (0, 0),
            textcoords="offset points",
            va="center",
            color=LOOKS.get(method, OTHERS_LOOK)[1],
            **({"weight": "bold"} if method in LOOKS else {"size": 9}),
        )
        crowds = [put(text, place).padded(1.5).count_overlaps(taken) for place in PLACES]
        taken.append(put(text, PLACES[crowds.index(min(crowds))]))


def put(text: Annotation, place: tuple[int, int]) -> Bbox:
    """Move a label; what it covers there."""
    text.set(position=place, ha="left" if place[0] > 0 else "right")
    return text.get_window_extent()


def main() -> None:
    """Read the tables, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "speed.svg")
    arguments = parser.parse_args()
    setting = {"model": MODEL, "classes": CLASSES}
    quality = read("real-features", dataset=DATASET)
    plt.rcParams.update(STYLE)
    figure, panels = plt.subplots(1, 2, figsize=(11, 5.6), sharey=True, width_ratios=(3, 2))
    figure.subplots_adjust(left=0.06, right=0.99, top=0.94, bottom=0.22, wspace=0.04)
    for ax, (batch, title) in zip(panels, PANELS.items(), strict=True):
        ours, naive = (read("gpu", **setting, batch=batch, way=way) for way in ("ours", "naive"))
        ours |= read("gpu-methods", **setting, batch=batch)
        draw(ax, ours, naive, quality)
        label(ax, ours, quality)
        ax.set_title(title)
    panels[0].set_ylabel("accuracy in per cent, stored features")
    for way, fill in (("pta.compile", GREY), ("plain code", "white")):
        panels[1].plot([], [], "s", color=GREY, markerfacecolor=fill, label=way)
    panels[1].legend(loc="lower left", frameon=False)
    gpu, orders = ours["clip"]["hardware"].split(",")[0], len(quality["clip"]["seeds"].split())
    figure.text(0.06, 0.02, CAPTION.format(**setting, gpu=gpu, orders=orders), size=9)
    figure.savefig(arguments.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
