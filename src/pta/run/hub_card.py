"""The card of a classifier on the hub, made from its state. Nothing on it was measured."""

import re
from html import escape

from pta.door.safe_text import printable
from pta.methods import Adapter
from pta.methods.classes import class_table
from pta.methods.frozen import ENOUGH, frozen_warning
from pta.run.hub_config import HubConfig

_MOST_ROWS = 1000
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~!])")
_UNTESTED = """\
- No answer was compared with a label for this card: it says nothing about accuracy.
- It was not tested on other pictures than those of its stream: another site, camera, season or light.
- It was not tested on pictures that belong to none of the classes, nor on pictures made to mislead it.
- It was not tested for people: who is on a picture, or whether groups of people are treated alike.

`pta trial` and `pta audit` measure whether it helps on your pictures."""


def card(adapter: Adapter, config: HubConfig, repository: str) -> str:
    """README.md, with its metadata."""
    names, learned = len(config.classes), adapter.position
    parameters = ", ".join(_in_code(f"{name}={value}") for name, value in sorted(config.parameters.items()))
    texts = f"{len(config.templates):,} templates filled with its name" + " and descriptions" * bool(
        config.descriptions
    )
    source = f" It went on from {_plain(config.continued_from)}." if config.continued_from else ""
    return f"""\
---
{_metadata(config)}
---

# {names:,} classes, {adapter.name}, {learned:,} samples

A zero-shot classifier of pictures that keeps learning from the pictures it classifies, without labels or training. The
model is `{config.model}`. Its weights are not here, only what `{adapter.name}` has learned.{source}

```python
import pta

classifier = pta.Classifier.from_pretrained("{repository}")
print(classifier("picture.jpg").label)  # answers, and learns
print(classifier("picture.jpg", learn=False).label)  # answers only
```

## Classes

{_classes(adapter)}

## Method

`{adapter.name}` with {parameters or "no parameters"}. The texts of a class are {texts}.

**Without learning.** {_frozen(adapter)}

**Probabilities.** {_calibration(adapter)} They were not compared with labels.

## Not tested

{_UNTESTED}
"""


def _metadata(config: HubConfig) -> str:
    base = re.fullmatch(r"hf:(.+)", config.model)
    lines = ["library_name: pta", "tags: [pta, clip, test-time-adaptation, model_hub_mixin]"]
    if config.model != "embedded-points":
        lines.append("pipeline_tag: zero-shot-image-classification")
    return "\n".join([*lines, f"base_model: {base[1]}"] if base else lines)


def _classes(adapter: Adapter) -> str:
    counted = bool(adapter.counts_in)
    meaning = "number of samples, or sum of their weights" if counted else f"{adapter.name} keeps no count per class"
    rows = class_table(adapter)
    lines = [f"Samples learned: {meaning}.", "", "| class | learned | samples |", "|---|---|---|"]
    for row in rows[:_MOST_ROWS]:
        samples = "–" if row.samples is None else f"{row.samples:.5g}"
        lines.append(f"| {_plain(row.name)} | {'yes' if row.learned else 'no'} | {samples} |")
    if len(rows) > _MOST_ROWS:
        lines.append(f"| and {len(rows) - _MOST_ROWS:,} more | | |")
    return "\n".join(lines)


def _frozen(adapter: Adapter) -> str:
    if warning := frozen_warning(adapter):
        return f"Do not stop learning yet: {_plain(warning)}."
    if not adapter.loses_frozen:
        return f"`{adapter.name}` is not known to lose when it answers with `learn=False`."
    return f"With {ENOUGH} or more samples per class, answers with `learn=False` are rarely below zero-shot's."


def _calibration(adapter: Adapter) -> str:
    value = adapter.parameters.get("calibration", "fixed")
    matched = "the temperature was matched to the stream" if value == "matched" else "the rule fixes the temperature"
    return f"`calibration={value}`: {matched}."


def _in_code(text: str) -> str:
    return f"`{printable(text).replace('`', '')}`"


def _plain(text: str) -> str:
    """A text as Markdown shows it, without markup, links or HTML."""
    return _MARKDOWN.sub(r"\\\1", escape(printable(text), quote=False))
