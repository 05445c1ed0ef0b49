"""Exhibit: the texts, pictures and methods of a demonstration for one kind of samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pta.measure.report.pictures import picture
from pta.models import EMBEDDED_TEMPLATES

Draw = Callable[[Any, str, str], str]
"""A sample, what it is, and a CSS class to the HTML of a picture."""


@dataclass(frozen=True)
class Exhibit:
    """What is particular to one kind of samples."""

    thing: str  # one sample
    title: str  # what is shown, for the top of the page
    command: str  # that shows it, without shift, severity and seed
    call: str  # the same in Python, with the bracket open
    severities: str  # how severities are counted
    templates: tuple[str, ...]  # of the prompts
    origin: str  # of the samples; {} is how many
    model: str  # that labels them
    others: tuple[str, ...]  # methods beside zero-shot and PTA: those that take seconds, not minutes
    batch: int  # samples that are encoded at once; few, so that a progress bar moves
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of PTA
    draw: Draw = picture

    @property
    def things(self) -> str:
        """Several samples."""
        return f"{self.thing}s"


FASHION = Exhibit(
    thing="image",
    title="Fashion images, labelled by a small CLIP-like model",
    command="pta demo",
    call="run_demo(",
    severities="of 5",
    templates=EMBEDDED_TEMPLATES,
    origin="the first {} of Fashion-MNIST’s test file (Zalando SE, MIT licence)",
    model="the one embedded in pta, trained on Fashion-MNIST’s training images: a small model that knows only "
    "clothes, so these numbers say nothing about CLIP itself",
    others=("wpta", "tda", "sca", "onzeta", "bca", "adapt"),
    batch=100,
)
