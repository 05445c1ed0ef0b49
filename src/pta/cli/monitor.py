"""`pta monitor`: make a reference, and watch a stream of features as `pta predict` and `pta serve` do."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from typer import Argument, Option

from pta.cli import options
from pta.cli.messages import say
from pta.cli.monitor_options import MonitorOptions, On, Outlet
from pta.cli.output import CommandGroup, progress, require_place, write_json
from pta.core.labels import UNKNOWN
from pta.data.features import FeatureFile, load_features
from pta.door.claims import sole_writer
from pta.errors import InvalidParameter
from pta.measure.report.figures import require_matplotlib
from pta.measure.report.health import draw_health, require_figure
from pta.methods import Adapter, create_adapter
from pta.monitor import Alarm, ScoreReference, StreamGuard, parse_reactions, watched_steps
from pta.run.watched import sources_of

_BATCH = 256

monitor = CommandGroup("monitor")
Features = Annotated[Path, "A feature file, as pta extract writes it.", Argument(metavar="FEATURES")]


@monitor.command()
def reference(
    features: Features,
    out: Annotated[Path, "File of the reference, .safetensors."],
    replace: options.Replace = False,
) -> None:
    """Make a reference from samples that you trust, at least 200, for --reference."""
    require_place(out, replace=replace)
    held = load_features(features)
    with sole_writer(out):
        made = ScoreReference.of(held.classifier, held.samples.features)
        made.save(out, held.classifier)
    confidence, cosine = made.means
    say(f"{out}: {len(made.scores):,} samples, mean confidence {confidence:.3f}, mean top cosine {cosine:.3f}")


@monitor.command()
def run(
    features: Features,
    *,
    method: options.MethodOptions,
    watching: MonitorOptions,
    on: On = None,
    seed: Annotated[int | None, "Shuffle the samples with this seed.", Option(min=0, show_default="as in the file")] = (
        None
    ),
    figure: Annotated[Path | None, "Draw the numbers and alarms: .svg, .png or .pdf."] = None,
    json: Annotated[Path | None, "Write numbers, alarms and classes as JSON; - for stdout."] = None,
    replace: options.Replace = False,
) -> None:
    """Watch a stream of features, and print its alarms and its health."""
    reactions = parse_reactions(on or [])
    if watching.silent_after is not None:
        raise InvalidParameter("--silent-after goes by the clock, which a file does not have; leave it out")
    require_place(json, replace=replace)
    if figure is not None:
        require_place(figure, replace=replace)
        require_figure(figure)
        require_matplotlib()
    held = load_features(features)
    adapter = create_adapter(method.name, held.classifier, **method.parameters)
    if adapter.scope == "stream":
        raise InvalidParameter(f"{adapter.name} needs the whole dataset at once, so it has no stream to watch")
    guard = watching.guard(held.classifier, adapter, reactions)
    with watching.outlet(replace=replace) as outlet:
        blocks, alarms, kept = _watch(held, adapter, guard, seed, outlet)
        say(outlet.health(guard.monitor, kept))
    if figure is not None:
        draw_health(figure, blocks, alarms, guard.monitor.numbers()["reference_bands"])
    if json is not None:
        record = {"file": held.name, "method": adapter.name, "blocks": blocks}
        found = {"alarms": [alarm.as_dict() for alarm in alarms], "health": guard.monitor.numbers()}
        parts = {"classes": guard.monitor.classes(), "sources": guard.monitor.sources()}
        write_json(json, record | found | parts)


def _watch(
    held: FeatureFile, adapter: Adapter, guard: StreamGuard, seed: int | None, outlet: Outlet
) -> tuple[list[dict[str, Any]], list[Alarm], int]:
    """The numbers of each block, the alarms, and how many samples a reaction kept from being learned."""
    n = len(held.samples)
    order = np.arange(n) if seed is None else np.random.default_rng(seed).permutation(n)
    sources = sources_of(held.paths or (), held.classifier.class_names)
    blocks, alarms, kept = list[dict[str, Any]](), list[Alarm](), 0
    with progress() as bar:
        task = bar.add_task("watching", total=n)
        for rows in np.array_split(order, range(_BATCH, n, _BATCH)):
            theirs = [sources[row] for row in rows] if sources else []
            unknown = np.full(len(rows), UNKNOWN, np.int64)
            for piece in watched_steps(adapter, guard, held.samples[torch.from_numpy(rows)], unknown, theirs):
                blocks += piece.blocks
                alarms += piece.alarms
                kept += int((~piece.learned).sum())
                for block in piece.blocks:
                    outlet.write(block)
                for alarm in piece.alarms:
                    outlet.alarm(alarm)
            bar.update(task, advance=len(rows))
    return blocks, alarms, kept
