"""Changes to an MQTT broker: retained topics, a last will, TLS. Nothing is subscribed to."""

import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from pta.door.video import Login
from pta.errors import (
    InvalidParameter,
    MachineFailure,
    MissingPackage,
    PtaError,
    explaining,
    first_line,
    how_to_install,
)
from pta.run.watch.change import AnswerChange
from pta.run.watch.topics import OFFLINE, ONLINE, Regions, Topics

_ADDRESS = re.compile(
    r"mqtt(?P<tls>s?)://(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+)(:(?P<port>\d{1,5}))?(/(?P<prefix>[^$+#][^+#]*)?)?",
    re.ASCII,
)
_STEP_SECONDS = 5.0  # for connecting, and for the broker's answer to a message
_RECONNECT_SECONDS = (1, 60)  # the pause after a lost connection, doubled up to the second


class Broker:
    """Where messages go: mqtt[s]://HOST[:PORT][/PREFIX], how to log in, and the certificates that are trusted."""

    def __init__(self, address: str, login: Login | None = None, certificates: Path | None = None) -> None:
        if find_spec("paho") is None:
            raise MissingPackage(f"mqtt needs paho-mqtt; {how_to_install('mqtt')}")
        found = _ADDRESS.fullmatch(address)
        if found is None or int(found["port"] or 0) >= 2**16 or not address.isprintable():
            wanted = "mqtt://HOST[:PORT][/PREFIX], or mqtts:// with TLS; no password, and no + or # in the prefix"
            raise InvalidParameter(f"mqtt is an address like {wanted}")
        self.address, self.login, self.certificates = address, login, certificates
        self.host, self.has_tls = found["host"].strip("[]"), bool(found["tls"])
        if certificates is not None and not self.has_tls:
            raise InvalidParameter("mqtt_certificates belong to an address that begins with mqtts://")
        self.port = int(found["port"] or (8883 if self.has_tls else 1883))
        self.topics = Topics((found["prefix"] or "pta").strip("/"))


class MqttMessages:
    """Publishes the changes of regions, and whether cameras can be seen, until it is closed; it connects again itself.

    Args:
        regions: those that changes can come from.
        latest: changes that the broker was told of before, which it may have forgotten.
        home_assistant: whether to tell Home Assistant of the regions.
    """

    def __init__(
        self, broker: Broker, regions: Regions, latest: Iterable[AnswerChange], *, home_assistant: bool
    ) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self._topics = broker.topics
        messages = dict(self._topics.discovery(regions)) if home_assistant else {}
        self._retained = {topic: json.dumps(message) for topic, message in messages.items()}
        """What the broker is told of again with each connection, by topic."""
        self._retained |= {self._topics.camera_status(camera): OFFLINE for camera, _ in regions}
        self._retained[self._topics.status] = ONLINE
        self._retained |= dict(map(self._message, latest))
        self._telling = Lock()  # else what is told while a connection begins would be lost, or come before what was
        self._connected, self._problem = Event(), f"{broker.address} does not answer"
        self._client = client = Client(CallbackAPIVersion.VERSION2)
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_connect_fail = self._on_connect_fail
        client.connect_timeout = _STEP_SECONDS
        client.reconnect_delay_set(*_RECONNECT_SECONDS)
        client.will_set(self._topics.status, OFFLINE, qos=1, retain=True)
        if broker.login is not None:
            client.username_pw_set(broker.login.user, broker.login.password)
        if broker.has_tls:
            with explaining(f"the certificates {broker.certificates} cannot be used"):
                client.tls_set(None if broker.certificates is None else str(broker.certificates))
        client.connect_async(broker.host, broker.port)
        client.loop_start()

    def deliver(self, change: AnswerChange) -> None:
        """Publish a change; raises an error if the broker does not say that it has it."""
        self._publish(*self._message(change))

    def tell(self, camera: str, status: str) -> None:
        """Publish that a camera can be seen or not: now, or with the next connection."""
        topic = self._topics.camera_status(camera)
        with self._telling:
            self._retained[topic] = status
            if self._connected.is_set():
                self._client.publish(topic, status, qos=1, retain=True)

    def wait(self) -> None:
        """Wait for a connection; raises an error if there is none after some seconds."""
        if not self._connected.wait(2 * _STEP_SECONDS):
            raise MachineFailure(self._problem)

    def close(self) -> None:
        """Say goodbye, so that the broker publishes no last will, and end within some seconds."""
        with suppress(OSError, PtaError):
            if self._connected.is_set():
                self._publish(self._topics.status, OFFLINE)
        self._client.disconnect()
        ending = Thread(target=self._client.loop_stop, daemon=True)
        ending.start()
        ending.join(_STEP_SECONDS)

    def _message(self, change: AnswerChange) -> tuple[str, str]:
        return self._topics.state(change.camera, change.region), json.dumps(change.as_dict())

    def _publish(self, topic: str, message: str) -> None:
        self.wait()
        sent = self._client.publish(topic, message, qos=1, retain=True)
        try:
            sent.wait_for_publish(_STEP_SECONDS)
            is_there = sent.is_published()
        except (RuntimeError, ValueError) as error:
            raise MachineFailure(f"the connection was lost: {first_line(error)}") from None
        if not is_there:
            raise MachineFailure("the broker does not say that it has the message")
        self._retained[topic] = message

    def _on_connect(self, client: Any, _data: object, _flags: object, code: Any, _properties: object) -> None:
        if code.is_failure:
            self._problem = f"the broker refuses the connection: {str(code).lower()}"
            return
        with self._telling:
            for topic, message in list(self._retained.items()):
                client.publish(topic, message, qos=1, retain=True)
            self._connected.set()

    def _on_disconnect(self, *_: object) -> None:
        if self._connected.is_set():
            self._problem = "the connection to the broker was lost"
        self._connected.clear()

    def _on_connect_fail(self, *_: object) -> None:
        error = sys.exception()  # of the attempt that called this
        if error is not None:
            self._problem = f"no connection to the broker: {first_line(error)}"
