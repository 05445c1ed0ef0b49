"""Pictures of all streams are encoded together, and a bad one concerns its own request alone."""

import numpy as np
import pytest
import torch
from photos import FASHION, encoded
from PIL import Image

from pta import Classifier
from pta.core.limits import Limits
from pta.serve.requests import Refused, Request
from pta.serve.streams import picture_encoder
from pta.serve.streams.answering import StreamState
from pta.serve.streams.served_model import ServiceSettings
from pta.serve.streams.service import Service


def png(picture):
    return encoded(Image.fromarray(picture), "PNG")


@pytest.fixture
def service(served, tmp_path):
    with Service.open(served, tmp_path, ServiceSettings(limits=Limits(max_pixels=10_000))) as service:
        yield service


def submit(service, *pictures, learn="true"):
    return service.submit(Request("default", None, b"0" * 16, learn, None, 0, False, pictures=pictures))


def test_a_bad_picture_is_named_and_concerns_its_own_request_alone(service):
    good = [png(picture) for picture in FASHION.images[:6]]
    large = png(np.zeros((200, 200), np.uint8))
    before = service.streams()[0]["position"]
    futures = [
        submit(service, *good[:2]),
        submit(service, good[2], b"http://example.org/a.png"),
        submit(service, good[3]),
    ]
    futures += [submit(service, large), submit(service, good[4][:60]), submit(service, good[5])]
    for number, item in ((1, 1), (3, 0), (4, 0)):
        with pytest.raises(Refused, match=rf"image\[{item}\]: .+") as refusal:
            futures[number].result()
        assert refusal.value.status == 422
    assert [len(futures[number].result().labels) for number in (0, 2, 5)] == [2, 1, 1]
    assert service.streams()[0]["position"] == before + 4


def test_answers_to_pictures_are_those_of_a_classifier(service):
    pictures = FASHION.images[20:40]
    reply = submit(service, *map(png, pictures), learn="false").result()
    alone = Classifier("embedded", classes=FASHION.class_names, method="clip", device="cpu", cache=None)
    answers = alone([Image.fromarray(picture) for picture in pictures])
    assert reply.outputs["zero_shot_label"].tolist() == [answer.label for answer in answers]
    expected = [answer.probability for answer in answers]
    np.testing.assert_allclose(
        reply.outputs["zero_shot_probability"], expected, atol=5e-3
    )  # features are rounded to float16


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_learning_and_replaying_use_one_thread_and_encoding_uses_all(served, tmp_path, monkeypatch, three_threads):
    used = {}

    def record(owner, name):
        work = getattr(owner, name)

        def recorded(*arguments, **named):
            used[name] = torch.get_num_threads()
            return work(*arguments, **named)

        monkeypatch.setattr(owner, name, recorded)

    record(picture_encoder, "encode_prepared")
    record(StreamState, "learn")
    record(StreamState, "learn_again")
    with Service.open(served, tmp_path) as service:
        assert submit(service, png(FASHION.images[0])).result().learned
        assert used == {"encode_prepared": 3, "learn": 1}
        service.operate("default", "rewind", sequence=1)
        assert used.pop("learn_again") == 1
    with Service.open(served, tmp_path) as service:
        service.summary("default")
        assert used["learn_again"] == 1
