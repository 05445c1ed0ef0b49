"""The options of monitors, and where alarms and numbers go: messages, a file of JSON lines, a webhook."""

import json
import os
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Annotated, Any

from typer import Option

from pta.cli.messages import say, warn
from pta.core.classifier import ZeroShotClassifier
from pta.door.claims import sole_writer
from pta.errors import InvalidParameter, MachineFailure, UnreadableFile
from pta.methods import Adapter
from pta.methods.state_file import read_monitor
from pta.monitor import Alarm, Monitor, ScoreReference, StreamGuard, takes_order
from pta.monitor.monitor import WINDOW
from pta.monitor.scores import BLOCK
from pta.monitor.silence import Silence
from pta.run.webhook import Receiver, Webhook, read_key

On = Annotated[
    list[str] | None,
    "React to an alarm: note, hold, zero-shot or cap; may be repeated.",
    Option(metavar="ALARM=REACTION"),
]
ReferenceFile = Annotated[
    Path | None, "Compare with this file of pta monitor reference.", Option(show_default="the first 500 samples")
]
_LINES_BEFORE_A_SAVE = 2**16  # that a run can write between two saves of its state, and more
_CLOSING = 10.0  # seconds that the last alarms have to reach their address


@dataclass(frozen=True)
class AlarmOptions:
    """Where alarms are sent."""

    alarm_url: Annotated[str | None, "Send alarms, and changes of pta watch, to this address, as JSON."] = None
    alarm_key: Annotated[Path | None, "File with the key that signs what is sent."] = None
    alarm_host: Annotated[
        list[str] | None, "A host of --alarm-url that may have a private address; may be repeated."
    ] = None

    def __post_init__(self) -> None:
        if self.alarm_url is None and (self.alarm_key is not None or self.alarm_host):
            raise InvalidParameter("--alarm-key and --alarm-host belong to --alarm-url, which is missing")

    def receiver(self) -> Receiver | None:
        """The address with its key, checked."""
        if self.alarm_url is None:
            return None
        key = None if self.alarm_key is None else read_key(self.alarm_key)
        return Receiver(self.alarm_url, key, self.alarm_host or ())


@dataclass(frozen=True)
class MonitorOptions:
    """How a stream is watched, and what alarms do."""

    alarms: AlarmOptions
    monitor: Annotated[
        Path | None, "Write the numbers of the stream and its alarms, a line each.", Option(metavar="FILE.jsonl")
    ] = None
    reference: ReferenceFile = None
    window: Annotated[int, "Samples that numbers are taken over, a multiple of 64."] = WINDOW
    silent_after: Annotated[
        float | None, "Seconds without a sample after which the alarm silent is raised.", Option(min=0.1)
    ] = None

    def __post_init__(self) -> None:
        if self.monitor is not None and self.monitor.suffix != ".jsonl":
            raise UnreadableFile(f"--monitor {self.monitor}: the file must end in .jsonl")

    def given(self) -> dict[str, bool]:
        """Which options differ from their defaults, for a command that has no monitor."""
        values = ((one, getattr(part, one.name)) for part in (self, self.alarms) for one in fields(part))
        changed = {one.name: value != one.default for one, value in values if value is not self.alarms}
        return {f"--{name.replace('_', '-')}": is_given for name, is_given in changed.items()}

    def guard(
        self,
        classifier: ZeroShotClassifier,
        adapter: Adapter,
        reactions: Mapping[str, str],
        state: Path | None = None,
    ) -> StreamGuard:
        """The guard of a stream, whose monitor goes on from that in the state file, if there is one."""
        reference = None if self.reference is None else ScoreReference.load(self.reference, classifier)
        monitor = Monitor(classifier, reference=reference, window=self.window, takes_order=takes_order(adapter))
        if state is not None and (kept := read_monitor(state)) is not None:
            monitor.unpack(*kept, state)
        return StreamGuard(monitor, reactions)

    def require_place(self, *, append: bool = False, replace: bool = False) -> None:
        """Refuse a file of numbers that is there already, before any work."""
        if self.monitor is not None and self.monitor.exists() and not append and not replace:
            raise UnreadableFile(f"{self.monitor} exists; choose another --monitor, or replace it with --replace")

    @contextmanager
    def outlet(self, *, append: bool = False, replace: bool = False, resume: bool = False) -> Iterator["Outlet"]:
        """Where alarms and numbers go; with `resume`, lines that a killed run wrote are not written again."""
        self.require_place(append=append, replace=replace)
        receiver = self.alarms.receiver()
        webhook = None if receiver is None else Webhook(receiver)
        with ExitStack() as stack:
            if webhook is not None:
                stack.callback(webhook.close, _CLOSING)
            file, written = None, frozenset[str]()
            if self.monitor is not None:
                stack.enter_context(sole_writer(self.monitor))
                file = stack.enter_context(_opened(self.monitor, append=append))
                if resume:
                    with self.monitor.open(encoding="utf-8", errors="replace") as before:
                        written = frozenset(deque(before, _LINES_BEFORE_A_SAVE))
            yield Outlet(file, webhook, None if self.silent_after is None else Silence(self.silent_after), written)


def _opened(path: Path, *, append: bool) -> IO[str]:
    """A file for lines, which is not a link."""
    if path.is_symlink():
        raise UnreadableFile(f"--monitor {path} is a link, which is not followed; name the file itself")
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC) | os.O_NOFOLLOW
    try:
        return os.fdopen(os.open(path, flags, 0o666), "w", encoding="utf-8")
    except OSError as error:
        raise UnreadableFile(f"cannot write {path}: {error.strerror}") from None


@dataclass
class Outlet:
    """Tells people and programs of alarms."""

    _file: IO[str] | None
    _webhook: Webhook | None
    _silence: Silence | None
    _written: Collection[str] = ()
    raised: dict[str, int] = field(default_factory=dict)
    """How often each alarm was raised."""
    _region: str = ""

    def within(self, region: str) -> "Outlet":
        """The same for a region, which alarms and numbers name."""
        return replace(self, raised={}, _region=region)

    def alarm(self, alarm: Alarm) -> None:
        """An alarm was raised, or is over."""
        where = f"{self._region}: " if self._region else ""
        if alarm.raised:
            self.raised[alarm.kind] = self.raised.get(alarm.kind, 0) + 1
            warn(f"warning: {where}alarm {alarm.kind} {alarm.sentence}")
        else:
            say(f"{where}alarm {alarm.sentence}")
        self.write({"alarm": alarm.as_dict()})
        if self._webhook is not None:
            self._webhook.send(alarm.as_dict() | self._about)

    @property
    def _about(self) -> dict[str, str]:
        return {"region": self._region} if self._region else {}

    def look(self, position: int, *, came: bool = False) -> None:
        """Look at the clock; `came` says that samples came."""
        if self._silence is not None:
            for alarm in self._silence.sample(position) if came else self._silence.look(position):
                self.alarm(alarm)

    def write(self, line: dict[str, Any]) -> None:
        """Write a line of the file, if there is one: the numbers after a block of samples, or an alarm."""
        text = json.dumps(line | self._about) + "\n"
        if self._file is not None and text not in self._written:
            try:
                self._file.write(text)
                self._file.flush()
            except OSError as error:
                raise MachineFailure(f"cannot write the numbers of the monitor: {error.strerror}") from None

    def health(self, monitor: Monitor, held: int) -> str:
        """One line about a stream."""
        numbers = monitor.numbers()
        before = dict.fromkeys(numbers["alarms"], "from an earlier run")
        raised = ", ".join(f"{kind} ({n})" for kind, n in (before | self.raised).items())
        known = numbers["reference"]
        reference = f" (reference {known['zero_shot_confidence']:.2f})" if known else ""
        since, whole = numbers["since_start"], numbers["position"] // BLOCK * BLOCK
        why = "the order is sorted" if monitor.is_ordered else "its reference needs 500 learned samples"
        untested = "" if numbers["foreign_input_is_testable"] else f"; foreign-input cannot be tested: {why}"
        kept = f"; {held:,} samples answered and not learned" if held else ""
        return (
            f"health: zero-shot confidence {numbers['zero_shot_confidence']:.2f}{reference}, "
            f"{100 * since['changed']:.1f} % of the first {whole:,} answers changed, "
            f"order statistic {numbers['order']:.1f}; alarms: {raised or 'none'}{untested}{kept}"
        )
