"""The client: what it sends and reads, and that trying again learns nothing twice."""

import socket
import struct
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest
from http_serving import TOKEN, serving

import pta
from pta.data.features import load_features
from pta.errors import InvalidParameter, MachineFailure
from pta.serve import Client, Refused


@pytest.fixture(scope="module")
def server(pets, tmp_path_factory):
    with serving(pets, tmp_path_factory.mktemp("serve") / "state") as server:
        yield server


@pytest.fixture(scope="module")
def samples(pets):
    return load_features(pets).samples.features.numpy()


@pytest.fixture
def client(server):
    with Client(server.url, TOKEN) as client:
        yield client


def test_it_needs_no_extra():
    extra = ("uvicorn", "uvloop", "httptools", "orjson", "prometheus_client", "starlette")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({extra})); import pta.serve; print(pta.serve.Client.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "Client\n", done.stderr


def test_binary_and_json_give_the_same_answers(server, samples):
    by_form = []
    for is_binary in (True, False):
        with Client(server.url, TOKEN, binary=is_binary) as client:
            by_form.append(client.infer(samples[:3], learn=False, top=2, logits=True))
    assert by_form[0].labels == by_form[1].labels
    for name, output in by_form[0].outputs.items():
        np.testing.assert_array_equal(output, by_form[1].outputs[name])
    assert by_form[0].outputs["top_label"].shape == (3, 2)
    assert by_form[0].outputs["logits"].shape == (3, 4)
    assert not by_form[0].learned


def test_one_sample_may_be_a_row(client, samples):
    assert client.infer(samples[0], learn=False).outputs["label"].shape == (1,)


def test_every_operation_on_a_stream(client, samples, tmp_path, pets):
    client.create("door")
    client.infer(samples[:4], stream="door", source="left")
    learned = client.infer(samples[4:6], stream="door", source="right")
    assert (learned.learned, learned.outputs["sequence"].tolist()) == (True, [5, 6])
    assert {one["name"]: one["position"] for one in client.streams()}["door"] == 6
    state = client.export_state("door")
    file = tmp_path / "door.safetensors"
    file.write_bytes(state)
    assert pta.load_adapter(file, load_features(pets).classifier).position == 6

    assert client.operate("door", "unlearn", source="right", dry_run=True)["samples"] == 2
    assert client.show("door")["position"] == 6
    assert client.operate("door", "unlearn", source="right")["samples"] == 2
    assert client.show("door")["position"] == 4
    client.operate("door", "undo")
    client.operate("door", "rewind", sequence=3)
    assert client.show("door")["position"] == 3
    client.operate("door", "reset", classes=["cat"])
    client.operate("door", "reset")
    assert client.show("door")["position"] == 0
    client.operate("door", "import", content=state)
    assert client.show("door")["position"] == 6
    client.operate("door", "freeze")
    assert client.infer(samples[0], stream="door").reason is not None
    client.operate("door", "thaw")
    assert client.operate("door", "delete", dry_run=True)["samples"] == client.operate("door", "delete")["samples"] == 6
    with pytest.raises(Refused) as refused:
        client.show("door")
    assert refused.value.status == 404


class Broken:
    """A connection that loses the answers to the first requests, which the service has carried out."""

    def __init__(self, connection, losses):
        self.connection, self.losses, self.sent = connection, losses, 0

    def request(self, *given):
        self.sent += 1
        self.connection.request(*given)

    def getresponse(self):
        answer = self.connection.getresponse()
        if self.losses:
            self.losses -= 1
            answer.read()
            raise ConnectionResetError("reset by peer")
        return answer

    def __getattr__(self, name):
        return getattr(self.connection, name)


def test_a_lost_answer_is_asked_for_again_and_learned_once(client, samples, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    before = client.show()["position"]
    broken = client._connection = Broken(client._connection, losses=2)
    result = client.infer(samples[:2])
    assert (broken.sent, result.repeated, result.learned) == (3, True, True)
    assert client.show()["position"] == before + 2


def test_an_operation_whose_answer_is_lost_is_not_done_twice(client, samples):
    client.infer(samples[:1])
    client._connection = Broken(client._connection, losses=1)
    with pytest.raises(MachineFailure, match="reset by peer"):
        client.operate("default", "reset")
    assert [row["kind"] for row in client.show()["timeline"]].count("reset") == 1
    client.operate("default", "undo")


def test_the_name_of_a_stream_does_not_make_its_operations_repeatable(client):
    client.create("infer")
    broken = client._connection = Broken(client._connection, losses=1)
    with pytest.raises(MachineFailure, match="reset by peer"):
        client.delete("infer")
    assert broken.sent == 1


def test_a_full_queue_is_waited_for(client, samples, monkeypatch, server):
    waited = []
    monkeypatch.setattr("pta.serve.client.time.sleep", waited.append)
    submit, refusals = server.service.submit, [Refused("the queue is full", 429, retry_after=3)] * 2

    def full_at_first(request):
        if refusals:
            raise refusals.pop()
        return submit(request)

    monkeypatch.setattr(server.service, "submit", full_at_first)
    assert client.infer(samples[:1]).learned
    assert waited == [3, 3]


def test_what_is_refused_for_good_is_told_at_once(client, server, samples):
    with pytest.raises(Refused, match="shape B×16") as refused:
        client.infer(samples[:1, :3])
    assert refused.value.status == 422
    with Client(server.url, "wrong-token-wrong", retries=0) as other:
        with pytest.raises(Refused, match="a token is needed"):
            other.streams()
        with pytest.raises(Refused, match="a token is needed"):  # although it was not read
            other.infer(pictures=[bytes(20 * 2**20)])
    with pytest.raises(InvalidParameter, match="begins with http://"):
        Client("localhost:8080", TOKEN)
    with pytest.raises(InvalidParameter, match="either features or pictures"):
        client.infer()
    with (
        Client("http://127.0.0.1:1", TOKEN, retries=0) as other,
        pytest.raises(MachineFailure, match="does not answer"),
    ):
        other.streams()


def test_a_server_that_hangs_up_in_the_handshake_is_named_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up():
            connection, _ = listening.accept()
            with connection:
                connection.recv(1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        thread = Thread(target=hang_up)
        thread.start()
        with (
            Client(f"https://127.0.0.1:{listening.getsockname()[1]}", TOKEN, retries=0) as other,
            pytest.raises(MachineFailure, match=r"does not answer: .*reset by peer"),
        ):
            other.streams()
        thread.join()
