"""Pictures: a request has a limit of pixels, and the work of one does not stand in the way of another's."""

import threading

import numpy as np
import pytest
from photos import FASHION, encoded
from PIL import Image
from processes import PATIENCE
from serving import same_bits, state_of

from pta.run.feed.batches import default_workers
from pta.serve.requests import Refused, Request
from pta.serve.streams.served_model import ServiceSettings
from pta.serve.streams.service import Service

SMALL = [encoded(Image.fromarray(picture), "PNG") for picture in FASHION.images[:12]]


@pytest.fixture
def service(served, tmp_path):
    with Service.open(served, tmp_path, ServiceSettings(max_request_pixels=100 * 64 * 64)) as service:
        yield service


@pytest.fixture
def decoding(service):
    """Pictures are recorded when they are decoded, and decoded when `go_on` is set."""
    decoding = service._pipeline._pictures._decoding
    decode, decoding.begun, decoding.go_on = decoding.prepare, [], threading.Event()

    def prepare(content, *others):
        decoding.begun.append(content)
        decoding.go_on.wait(PATIENCE)
        return decode(content, *others)

    decoding.prepare = prepare
    yield decoding
    decoding.go_on.set()


def submit(service, pictures=None, features=None, *, learn="true", id=None):
    return service.submit(Request("default", id, b"0" * 16, learn, None, 0, False, features, pictures))


def random_features(service, count=1):
    return np.random.default_rng(count).standard_normal((count, service.shape.dim)).astype(np.float32)


def test_a_request_of_too_many_pixels_is_refused_before_any_is_decoded(service, decoding):
    large = encoded(Image.new("1", (640, 320)), "PNG")  # half of the limit
    for pictures, is_refused in ((3 * [large], True), (3 * [SMALL[0]], False), ([*SMALL[:1] * 130, large], True)):
        decoding.go_on.set()
        decoding.begun.clear()
        future = submit(service, tuple(pictures))
        if is_refused:
            with pytest.raises(Refused, match=r"pixels; --max-request-pixels is 409,600$") as refused:
                future.result(PATIENCE)
            assert (refused.value.status, decoding.begun) == (422, [])
        else:
            assert future.result(PATIENCE).learned


@pytest.mark.extensive
def test_256_pictures_of_88_million_pixels_are_refused_at_once(served):
    picture = encoded(Image.new("1", (9400, 9400)), "PNG")
    with Service.open(served, None) as service:
        with pytest.raises(Refused, match=r"22,620,160,000 pixels; --max-request-pixels is 268,435,456"):
            submit(service, 256 * (picture,)).result(PATIENCE)
        assert len(submit(service, 3 * (picture,)).result(PATIENCE).labels) == 3


def test_features_pass_pictures_that_are_being_decoded(service, decoding):
    slow = submit(service, tuple(SMALL))
    assert submit(service, features=random_features(service)).result(PATIENCE).outputs["sequence"].tolist() == [1]
    assert service.operate("default", "freeze")["sequence"] == 2
    assert service.operate("default", "thaw")["sequence"] == 3
    assert not slow.done()
    decoding.go_on.set()
    assert slow.result(PATIENCE).outputs["sequence"].tolist() == [*range(4, 16)]


def test_a_small_request_waits_for_one_picture_of_a_large_one(service, decoding):
    large = submit(service, tuple(SMALL[:1] * 64))
    small = submit(service, (SMALL[1],))
    decoding.go_on.set()
    assert small.result(PATIENCE).learned
    assert large.result(PATIENCE).learned
    assert decoding.begun.index(SMALL[1]) <= default_workers() + 1
    assert len(decoding.begun) == 65


def test_the_first_wrong_picture_of_a_request_is_named_and_the_rest_is_not_decoded(service, decoding):
    middle = len(SMALL[0]) // 2
    broken = SMALL[0][:middle] + bytes(40) + SMALL[0][middle + 40 :]  # the header is as it was
    pictures = (*SMALL[:3], broken, broken, *SMALL[:1] * 90)
    decoding.go_on.set()
    with pytest.raises(Refused, match=r"^image\[3\]: ") as refused:
        submit(service, pictures).result(PATIENCE)
    assert refused.value.status == 422
    assert len(decoding.begun) < len(pictures)
    assert submit(service, tuple(SMALL)).result(PATIENCE).learned


def test_a_repeated_request_is_not_decoded_again(service, decoding):
    decoding.go_on.set()
    first = submit(service, tuple(SMALL), id="once").result(PATIENCE)
    decoding.begun.clear()
    again = submit(service, tuple(SMALL), id="once").result(PATIENCE)
    assert (again.repeated, again.labels, decoding.begun) == (True, first.labels, [])


def test_a_failure_inside_concerns_the_requests_that_it_met(service, decoding, monkeypatch):
    def fail(*_):
        raise RuntimeError("no memory")

    decoding.go_on.set()
    monkeypatch.setattr(service._pipeline._pictures, "_encode", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        submit(service, tuple(SMALL)).result(PATIENCE)
    monkeypatch.undo()
    assert submit(service, tuple(SMALL)).result(PATIENCE).learned


def test_the_state_after_pictures_and_features_is_the_replay_of_the_journal(served, tmp_path):
    with Service.open(served, tmp_path) as service:
        futures = []
        for number in range(20):
            futures.append(submit(service, tuple(SMALL[: 1 + number % 12])))
            futures.append(submit(service, features=random_features(service, 1 + number % 3)))
        assert all(future.result(PATIENCE).learned for future in futures)
        live = state_of(service)
    with Service.open(served, tmp_path) as again:
        assert same_bits(live, state_of(again))


def test_what_was_taken_is_answered_before_the_end(served, tmp_path):
    with Service.open(served, tmp_path) as service:
        futures = [submit(service, tuple(SMALL)) for _ in range(10)]
    assert all(future.result(0).learned for future in futures)
