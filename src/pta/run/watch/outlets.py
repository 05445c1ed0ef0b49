"""What is done with changes: rows, a command, messages, pictures, each with a queue and a thread of its own."""

import json
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pta.monitor import Alarm
from pta.run.watch.change import AnswerChange
from pta.run.watch.delivery import Delivery
from pta.run.watch.mqtt import MqttMessages
from pta.run.watch.snapshots import SnapshotFolder
from pta.run.watch.topics import OFFLINE, ONLINE
from pta.run.webhook import Receiver, Webhook

_PICTURES = 32  # that wait at most


def posting(receiver: Receiver) -> Callable[[AnswerChange], None]:
    """What sends a change as signed JSON."""
    return lambda change: receiver.post(json.dumps({"kind": "change", **change.as_dict()}).encode())


class Outlets:
    """Hands changes and alarms on, and never waits for it.

    Args:
        actions: what is done with each change, all of different names.
        alarms: where alarms go as well.
    """

    def __init__(
        self,
        actions: Sequence[Delivery[AnswerChange]],
        snapshots: SnapshotFolder | None = None,
        mqtt: MqttMessages | None = None,
        alarms: Webhook | None = None,
    ) -> None:
        self._actions, self._mqtt, self._alarms = actions, mqtt, alarms
        self._pictures = (
            None if snapshots is None else Delivery("snapshots", snapshots.deliver, tries=1, most=_PICTURES)
        )

    @property
    def waiting(self) -> dict[str, list[AnswerChange]]:
        """The changes that are not delivered yet, by the name of the action."""
        return {one.name: one.waiting for one in self._actions}

    def put(self, change: AnswerChange, picture: NDArray[np.uint8]) -> None:
        """Hand a change on."""
        for one in self._actions:
            one.put(change)
        if self._pictures is not None:
            self._pictures.put((change, picture))

    def alarm(self, camera: str, alarm: Alarm) -> None:
        """Hand an alarm on."""
        if self._alarms is not None:
            self._alarms.send({"camera": camera, **alarm.as_dict()})

    def tell(self, camera: str, *, is_seen: bool) -> None:
        """Tell the broker whether pictures of a camera come."""
        if self._mqtt is not None:
            self._mqtt.tell(camera, ONLINE if is_seen else OFFLINE)

    def require_alive(self) -> None:
        """Raise what has ended an action for good."""
        for one in self._all:
            if one.defect is not None:
                raise one.defect

    def close(self, seconds: float) -> None:
        """Try what waits once more, for so many seconds together."""
        until = time.monotonic() + seconds
        for one in self._all:
            one.begin_to_close()
        for one in self._all:
            one.close(max(0.0, until - time.monotonic()))
        if self._mqtt is not None:
            self._mqtt.close()
        if self._alarms is not None:
            self._alarms.close(max(0.0, until - time.monotonic()))

    def problems(self) -> list[str]:
        """One sentence about each action that has not delivered everything."""
        said = []
        for one in self._all:
            left, counts = len(one.waiting), f"{one.delivered:,} delivered"
            if left or one.lost:
                said.append(f"{one.name}: {counts}, {left:,} not delivered, {one.lost:,} given up")
        return said

    @property
    def _all(self) -> list[Delivery[AnswerChange] | Delivery[tuple[AnswerChange, NDArray[np.uint8]]]]:
        return [*self._actions, *([] if self._pictures is None else [self._pictures])]
