"""`pta watch`: the answers for regions of cameras, and what is done when they change."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Annotated

from typer import Argument, Context, Exit, Option

from pta.cli.messages import say, warn
from pta.cli.options import ClassTexts, NamedModel
from pta.cli.predict import stopping_on_interrupt
from pta.cli.watch_options import CameraOptions, NamedCamera, WatchOptions, named_camera, read_configuration
from pta.cli.watch_outlets import opened_outlets
from pta.core.modality import IMAGES
from pta.door.claims import sole_writers
from pta.door.plain_files import make_folder
from pta.door.video import require_pyav
from pta.errors import InvalidParameter, MachineFailure, PtaError
from pta.methods import adapter_class
from pta.methods.state_file import require_saved_for
from pta.monitor.silence import Silence
from pta.run.classifier import Classifier
from pta.run.watch.change import RegionName
from pta.run.watch.loop import Watch, WatchedCamera, leave_cores_to_decoders
from pta.run.watch.mqtt import MqttMessages
from pta.run.watch.region import WatchedRegion

_CHECK_SECONDS = 20.0  # that a camera has for its first picture
_BESIDE_A_CONFIGURATION = ("config", "check", "quiet", "verbose", "log_file")


def watch(
    context: Context,
    camera: CameraOptions,
    given: WatchOptions,
    source: Annotated[str | None, "A video, rtsp://…, http(s)://…, or camera:0.", Argument(metavar="SOURCE")] = None,
    name: Annotated[str, "What the camera is called."] = "camera",
    config: Annotated[
        Path | None, "Read the cameras and all options from this file.", Option(metavar="FILE.toml")
    ] = None,
    check: Annotated[bool, "Check all options, and try each camera and the broker once."] = False,
) -> None:
    """Watch regions of cameras, adapt to the pictures, and report each change of the answer once it is confirmed."""
    if config is not None:
        _require_alone(context)
        given, cameras = read_configuration(config)
    elif source is not None:
        cameras = [named_camera(name, source, camera)]
    else:
        raise InvalidParameter("name what to watch, a video or the address of a camera, or give --config FILE.toml")
    named = given.model.named
    _require_usable(given, named, cameras)
    if check:
        _check(given, cameras)
        return
    states = {region: _state(given.state, region) for one in cameras for region in one.classes}
    with sole_writers(given.rows):
        if given.state is not None:
            make_folder(given.state)
        with sole_writers(*states.values()):
            for region, names in ((region, names) for one in cameras for region, names in one.classes.items()):
                if (state := states[region]) is not None and state.exists():
                    require_saved_for(state, names, given.method.method)
            _watch(given, named, cameras, states)


def _require_alone(context: Context) -> None:
    """Refuse options beside a configuration, which has them all."""
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is not None and source.name == "COMMANDLINE" and parameter.name not in _BESIDE_A_CONFIGURATION:
            raise InvalidParameter(f"{parameter.opts[0]} cannot be used with --config; write it into that file")


def _require_usable(given: WatchOptions, named: NamedModel, cameras: Sequence[NamedCamera]) -> None:
    """Check what needs neither the model nor a camera."""
    require_pyav()
    method = adapter_class(given.method.name)
    _ = given.method.parameters
    if method.scope != "sample":
        raise InvalidParameter(f"{method.name} does not answer picture by picture; choose another --method")
    if named.modality != IMAGES:
        raise InvalidParameter(f"--model {named.name} reads {named.modality.name}s; cameras have pictures")
    for one in cameras:
        for names in one.classes.values():
            ClassTexts.read(names, one.options.templates, None, IMAGES.prompts)


def _state(folder: Path | None, region: RegionName) -> Path | None:
    """The state of a region: CAMERA@REGION.safetensors, with a sign that no name has."""
    return None if folder is None else folder / f"{'@'.join(filter(None, region))}.safetensors"


def _check(given: WatchOptions, cameras: Sequence[NamedCamera]) -> None:
    """Try each camera and the broker once, and say a line about each."""
    problems = [_problem_with(one) for one in cameras]
    if (broker := given.broker()) is not None:
        messages = MqttMessages(broker, {}, (), home_assistant=False)
        try:
            messages.wait()
            say(f"ok: the broker {broker.address}")
        except PtaError as error:
            problems.append(str(error))
        finally:
            messages.close()
    for problem in filter(None, problems):
        warn(f"failed: {problem}")
    if any(problems):
        raise Exit(1)


def _problem_with(one: NamedCamera) -> str | None:
    """What is the matter with a camera, if no picture comes from it in time."""
    with one.camera() as camera:
        camera.wait(_CHECK_SECONDS)
        if frames := camera.take():
            sizes = (f"{frame.region} {frame.image.shape[1]}×{frame.image.shape[0]}".strip() for frame in frames)
            say(f"ok: {one.name}, {one.address}: {', '.join(sizes)}")
            return None
        return str(camera.failure or f"{one.name}: no picture came within {_CHECK_SECONDS:.0f} seconds")


def _watch(
    given: WatchOptions,
    named: NamedModel,
    cameras: Sequence[NamedCamera],
    states: Mapping[RegionName, Path | None],
) -> None:
    """Watch until all videos are over or a signal comes, and print a summary."""
    leave_cores_to_decoders()
    changed, regions, watched = Event(), dict[RegionName, WatchedRegion](), []
    for one in cameras:
        for region, names in one.classes.items():
            how = {"templates": one.options.templates, "method": given.method.name, **given.method.parameters}
            classifier = Classifier(named.encoder, names, **how)
            regions[region] = WatchedRegion(region, one.address, classifier, one.options.needs, states[region])
        own = [regions[region] for region in one.classes]
        camera = one.camera(on_change=changed.set, first=min(region.begins_at for region in own))
        watched.append(WatchedCamera(camera, own, Silence(one.options.silent_after)))
    with opened_outlets(given, regions) as (outlets, rows), stopping_on_interrupt() as interrupted:
        try:
            Watch(watched, outlets, rows, changed, given.save_every, given.batch).run(lambda: interrupted() is not None)
        finally:
            for shown in watched:
                if shown.frames or shown.camera.failure is None:  # else the failure says it
                    say(_sentence(shown))
        number = interrupted()
    if number:
        say("; ".join((f"stopped by {signal.Signals(number).name}", *outlets.problems())))
        raise Exit(128 + number)
    for failure in (one.camera.failure for one in watched):
        if failure is not None:
            raise failure
    if problems := outlets.problems():
        again = "tries again what was not delivered" if given.state else "cannot try again without --state"
        raise MachineFailure(f"{'; '.join(problems)}; the same command {again}")


def _sentence(one: WatchedCamera) -> str:
    """What came of a camera, in one line."""
    counts, changes = one.camera.counts, sum(region.changes for region in one.regions)
    lost = {"passed over": counts.passed_over, "broken": counts.broken, "not answered": one.refused}
    more = "".join(f", {count:,} {what}" for what, count in lost.items() if count)
    return f"{one.camera.name}: {one.frames:,} pictures{more}, {changes:,} change{'s' * (changes != 1)}"
