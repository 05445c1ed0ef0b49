"""A real MQTT broker for tests: Debian's mosquitto, on a port of its own, with or without a password."""

import shutil
import socket
import subprocess
from contextlib import contextmanager, suppress

import pytest
from processes import wait_until

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
needs_broker = pytest.mark.skipif(MOSQUITTO is None, reason="there is no mosquitto (Debian: apt-get install mosquitto)")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Broker:
    """A process that can be stopped and started again; what it retains is lost then."""

    def __init__(self, folder, lines=()):
        self.port, self._folder, self._process = free_port(), folder, None
        more = "\n".join(lines) or "allow_anonymous true"
        (folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\npersistence false\nuser root\n{more}\n"
        )

    @property
    def url(self):
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self):
        log = (self._folder / "log").open("ab")
        call = [MOSQUITTO, "-c", str(self._folder / "mosquitto.conf")]
        with log:
            self._process = subprocess.Popen(call, stdout=log, stderr=log)
        wait_until(self._answers, self._process)

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answers(self):
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@contextmanager
def broker(folder, *lines):
    one = Broker(folder, lines)
    one.start()
    try:
        yield one
    finally:
        one.stop()


@contextmanager
def listening(port, topic="#", login=None):
    """What comes, as a list of topic, text and whether it was retained; complete once `wait_for` says so."""
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    client, came = Client(CallbackAPIVersion.VERSION2), []
    if login is not None:
        client.username_pw_set(*login)
    client.on_connect = lambda *_: client.subscribe(topic, qos=1)
    client.on_message = lambda _client, _data, one: came.append((one.topic, one.payload.decode(), one.retain))
    client.reconnect_delay_set(1, 1)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield came
    finally:
        client.disconnect()
        client.loop_stop()
