"""What `pta watch` does with changes, as its options say."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pta.cli.messages import write_stdout
from pta.cli.watch_options import WatchOptions
from pta.run.watch.change import AnswerChange, RegionName
from pta.run.watch.command import Command
from pta.run.watch.delivery import Delivery
from pta.run.watch.mqtt import MqttMessages
from pta.run.watch.outlets import Outlets, posting
from pta.run.watch.region import WatchedRegion
from pta.run.watch.rows import ChangeRows, formatted
from pta.run.watch.snapshots import SnapshotFolder
from pta.run.webhook import Webhook

_MOST_ROWS = 10_000  # that wait for a disk
_TRIES_OF_A_COMMAND = 3  # one that fails for a reason of its own must not hold up the next changes for long
_TRIES_OF_AN_ADDRESS = 20  # about a quarter of an hour
_MIB = 2**20


@contextmanager
def opened_outlets(
    given: WatchOptions, regions: Mapping[RegionName, WatchedRegion]
) -> Iterator[tuple[Outlets, ChangeRows | None]]:
    """The actions, with what an earlier process could not deliver, and the file of the rows."""
    courses = {name: region.course for name, region in regions.items()}
    waiting: dict[str, list[AnswerChange]] = {}
    for course in courses.values():
        for name, changes in course.waiting.items():
            waiting.setdefault(name, []).extend(changes)

    def action(name: str, deliver: Callable[[AnswerChange], object], tries: int | None = None, most: int = 256) -> None:
        actions.append(Delivery(name, deliver, tries=tries, most=most, waiting=waiting.get(name, ())))

    actions: list[Delivery[AnswerChange]] = []
    rows, mqtt, snapshots, alarms = None, None, None, None
    with ExitStack() as stack:
        if given.rows is not None:
            places = {name: course.rows for name, course in courses.items() if course.rows is not None}
            rows = ChangeRows(given.rows, places)
            stack.callback(rows.close)
            for region, number in rows.covered[1].items():
                regions[region].note_written(number)
        if given.snapshots is not None:
            snapshots = SnapshotFolder(given.snapshots, int(given.snapshots_mib * _MIB))
        if (broker := given.broker()) is not None:
            behind = {change.place for change in waiting.get("mqtt", ())}
            latest = [one.newest for name, one in courses.items() if one.newest is not None and name not in behind]
            classes = {name: region.classifier.classes for name, region in regions.items()}
            mqtt = MqttMessages(broker, classes, latest, home_assistant=given.home_assistant)
            action("mqtt", mqtt.deliver)
        action("rows", _write_to_stdout if rows is None else rows.deliver, most=_MOST_ROWS)
        if given.command is not None:
            command = Command(given.program, given.command_timeout)
            stack.callback(command.end)
            action("command", command.deliver, tries=_TRIES_OF_A_COMMAND)
        if (receiver := given.alarms.receiver()) is not None:
            action("webhook", posting(receiver), tries=_TRIES_OF_AN_ADDRESS)
            alarms = Webhook(receiver)
        yield Outlets(actions, snapshots, mqtt, alarms), rows


def _write_to_stdout(change: AnswerChange) -> None:
    write_stdout(lambda: sys.stdout.write(formatted(change, is_csv=False)))
