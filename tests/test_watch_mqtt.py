"""Changes to a real broker: retained, escaped, in order, and told again when the broker was away."""

import gc
import json
import logging
import shutil
import subprocess
import sys
from contextlib import closing
from threading import Thread
from types import SimpleNamespace

import pytest
from brokers import broker, free_port, listening, needs_broker
from processes import wait_for

from pta.door.video import Login
from pta.errors import InvalidParameter, MachineFailure
from pta.run.watch import mqtt as mqtt_module
from pta.run.watch.change import AnswerChange, RegionName
from pta.run.watch.delivery import Delivery
from pta.run.watch.mqtt import Broker as Address
from pta.run.watch.mqtt import MqttMessages
from pta.run.watch.topics import Topics, topic_level

GATE = RegionName("yard", "gate")
REGIONS = {GATE: ("open", "shut")}


def change(number=1, label="open", camera="yard", region="gate"):
    return AnswerChange("1.000", camera, region, label, 0.9, None, number)


@pytest.fixture
def real(tmp_path):
    with broker(tmp_path) as one:
        yield one


def messages(address, latest=(), home_assistant=True, regions=REGIONS):
    return closing(MqttMessages(Address(address), regions, latest, home_assistant=home_assistant))


def texts(came, topic):
    return [text for name, text, _ in came if name == topic]


@needs_broker
def test_a_change_is_retained_and_home_assistant_finds_its_region(real):
    with messages(f"{real.url}/home/pta") as sent:
        sent.deliver(change())
        with listening(real.port) as came:
            wait_for(lambda: len(came) == 4)
            assert all(retained for _, _, retained in came)
            by_topic = {topic: text for topic, text, _ in came}
            assert by_topic["home/pta/yard/status"] == "offline"  # until a picture comes
            sent.tell("yard", "online")
            wait_for(lambda: "online" in texts(came, "home/pta/yard/status"))
        state = "home/pta/yard/gate/state"
        assert json.loads(by_topic[state]) == change().as_dict()
        assert by_topic["home/pta/status"] == "online"
        (config,) = [json.loads(text) for topic, text in by_topic.items() if topic.startswith("homeassistant/sensor/")]
        assert config["state_topic"] == state
        assert config["options"] == ["open", "shut"]
        assert {one["topic"] for one in config["availability"]} == {"home/pta/status", "home/pta/yard/status"}


def test_a_camera_that_is_seen_while_a_connection_begins_is_online():
    came = []
    with messages(f"mqtt://127.0.0.1:{free_port()}", home_assistant=False) as sent:
        seen = Thread(target=sent.tell, args=("yard", "online"))

        class Client:
            def publish(self, topic, message, **how):
                came.append((topic, message))
                if len(came) == 1:
                    seen.start()
                    seen.join(0.2)  # it waits, or is lost

        own, sent._client = sent._client, Client()
        sent._on_connect(sent._client, None, None, SimpleNamespace(is_failure=False), None)
        seen.join()
        sent._connected.clear()
        sent._client = own
    assert dict(came)["pta/yard/status"] == "online"


@needs_broker
def test_goodbye_is_offline_and_so_is_a_kill(real, tmp_path):
    with listening(real.port, "pta/status") as came:
        with messages(real.url, home_assistant=False) as sent:
            sent.deliver(change())
            wait_for(lambda: texts(came, "pta/status") == ["online"])
        wait_for(lambda: texts(came, "pta/status") == ["online", "offline"])
        code = f"""
import time
from pta.run.watch.mqtt import Broker, MqttMessages
sent = MqttMessages(Broker({real.url!r}), {{}}, (), home_assistant=False)
time.sleep(1000)
"""
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            wait_for(lambda: len(texts(came, "pta/status")) == 3)
            process.kill()
        wait_for(lambda: texts(came, "pta/status") == ["online", "offline"] * 2)


@needs_broker
def test_a_broker_that_was_away_is_told_of_everything_in_order(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(mqtt_module, "_STEP_SECONDS", 0.5)
    monkeypatch.setattr(mqtt_module, "_RECONNECT_SECONDS", (1, 1))
    with broker(tmp_path) as real, messages(real.url, home_assistant=False) as sent:
        delivery = Delivery("mqtt", sent.deliver, pauses=(0.01,))
        delivery.put(change(1))
        wait_for(lambda: delivery.delivered == 1)
        real.stop()
        with caplog.at_level(logging.INFO, "pta.watch"):
            for number in (2, 3):
                delivery.put(change(number))
            wait_for(lambda: delivery.failed > 0)
            real.start()
            with listening(real.port, "pta/yard/#") as came:
                wait_for(lambda: delivery.delivered == 3)
                wait_for(lambda: texts(came, "pta/yard/gate/state")[-1:] == [json.dumps(change(3).as_dict())])
                numbers = [json.loads(text)["number"] for text in texts(came, "pta/yard/gate/state")]
        delivery.close(10)
        assert delivery.lost == 0
        assert sorted(set(numbers))[-1] == 3
        assert numbers == sorted(numbers)  # each at least once, in order; a subscriber may come late for the first
        said = [one.message for one in caplog.records if one.name == "pta.watch"]
        assert ["failed" in line for line in said] == [True, False] * (len(said) // 2)  # a line when it begins and ends


@needs_broker
def test_a_broker_that_forgot_is_told_the_latest_again(real):
    with messages(real.url, [change(7, "shut")], home_assistant=False), listening(real.port, "pta/+/+/state") as came:
        wait_for(lambda: came)
        assert json.loads(came[0][1])["label"] == "shut"


@needs_broker
@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="there is no mosquitto_passwd")
def test_a_wrong_password_is_one_line_and_the_right_one_is_taken(tmp_path):
    passwords = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "me", "secret"], check=True, capture_output=True)
    with broker(tmp_path, "allow_anonymous false", f"password_file {passwords}") as one:
        with closing(MqttMessages(Address(one.url, Login("me", "wrong")), {}, (), home_assistant=False)) as sent:
            wait_for(lambda: "refuses" in sent._problem)
            with pytest.raises(MachineFailure, match=r"^the broker refuses the connection: [\w ]+$"):
                sent.wait()
        with closing(MqttMessages(Address(one.url, Login("me", "secret")), {}, (), home_assistant=False)) as sent:
            sent.wait()


def test_no_broker_is_one_line(monkeypatch):
    monkeypatch.setattr(mqtt_module, "_STEP_SECONDS", 0.2)
    with messages(f"mqtt://127.0.0.1:{free_port()}") as sent:
        wait_for(lambda: "refused" in sent._problem)
        with pytest.raises(MachineFailure, match=r"^no connection to the broker: .*refused$"):
            sent.deliver(change())


@needs_broker
@pytest.mark.filterwarnings("ignore")  # paho leaves the socket of a failed handshake to the garbage collector
def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path):
    call = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    call += ["-addext", "subjectAltName=DNS:localhost", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "own.pem"]
    subprocess.run(call, check=True, capture_output=True)
    lines = ("allow_anonymous true", f"certfile {tmp_path / 'own.pem'}", f"keyfile {tmp_path / 'key.pem'}")
    with broker(tmp_path, *lines) as one:
        address = f"mqtts://localhost:{one.port}"
        with messages(address) as sent:
            wait_for(lambda: "certificate" in sent._problem)
        gc.collect()
        trusted = Address(address, certificates=tmp_path / "own.pem")
        with closing(MqttMessages(trusted, {}, (), home_assistant=False)) as sent:
            sent.wait()


@pytest.mark.parametrize("name", ["a/b", "#", "+", "bin #1/2", "\n", "\x00", "\x7f", "\ud800", "100%", "ü é"])
def test_no_name_is_more_than_one_level_of_a_topic(name):
    level = topic_level(name)
    assert not set("+#/") & set(level)
    assert level.isprintable()
    topics = Topics("pta")
    assert topics.state(name, name).count("/") == 3
    assert len({topic_level(one) for one in (name, f"{name}%", level)}) == (2 if level == name else 3)


@pytest.mark.parametrize(
    "address",
    ["mqtt://", "http://host", "mqtt://me:secret@host", "mqtt://host/a/#", "mqtt://host/$SYS", "mqtt://h:70000"],
)
def test_an_address_that_is_none_is_refused_without_what_it_holds(address):
    with pytest.raises(InvalidParameter, match=r"mqtt is an address like mqtt://HOST") as error:
        Address(address)
    assert "secret" not in str(error.value)


def test_classes_in_messages_are_json_whatever_they_are_called():
    (_, message), *_ = Topics("pta").discovery({GATE: ('a "b"/#', "\n\u202e")})
    assert json.loads(json.dumps(message))["options"] == ['a "b"/#', "\n\u202e"]
