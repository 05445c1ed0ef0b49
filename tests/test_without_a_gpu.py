"""What a GPU would be told, and in which order, on machines that have none."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

import pta
from pta.data.fashion import load_fashion_test
from pta.data.prompts import build_classifier
from pta.models import EmbeddedEncoder
from pta.run.gpu import encoder_program, program
from pta.run.gpu.encoder_program import Recording, Uploads

if torch.cuda.is_available():
    pytest.skip("has a GPU", allow_module_level=True)


class Diary(list):
    """What was asked of streams and events."""

    def stream(self, name):
        return SimpleNamespace(
            name=name,
            wait_stream=lambda other: self.append(f"{name} waits for {other.name}"),
            wait_event=lambda event: self.append(f"{name} waits for {event.name}"),
        )

    def event(self, name):
        return SimpleNamespace(
            name=name,
            record=lambda: self.append(f"{name} recorded"),
            synchronize=lambda: self.append(f"host waits for {name}"),
        )


@pytest.fixture
def diary(monkeypatch):
    diary = Diary()
    names = iter(f"event {n}" for n in range(100))
    current = diary.stream("current")
    for name, fake in {
        "Stream": lambda: diary.stream("side"),
        "Event": lambda: diary.event(next(names)),
        "current_stream": lambda: current,
        "stream": lambda stream: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    real = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory=False, **options: real(*shape, **options))
    return diary


def test_an_upload_waits_for_whoever_still_needs_its_slot(diary):
    into = torch.zeros(4, 3, dtype=torch.uint8)
    sender = Uploads(into)
    assert diary == ["side waits for current"]
    for turn in range(3):
        diary.clear()
        uploaded, handed_over = ("event 0", "event 1") if turn % 2 == 0 else ("event 2", "event 3")
        sender.send(torch.full((2, 3), turn + 1, dtype=torch.uint8), into)
        assert diary == [
            f"host waits for {uploaded}",
            f"side waits for {handed_over}",
            f"{uploaded} recorded",
            f"current waits for {uploaded}",
            f"{handed_over} recorded",
        ]
        assert into.tolist() == [[turn + 1] * 3] * 2 + [[0] * 3] * 2


@pytest.fixture
def graph(monkeypatch):
    """A graph that keeps what the work gave when it was recorded, and a list of what happened."""
    happened = []

    @contextmanager
    def capture(graph, stream, capture_error_mode):
        happened.append("capture begins")
        yield
        happened.append("capture ends")

    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: happened.append("replay")))
    return happened


def test_warm_ups_leave_no_trace_and_answers_are_copies(diary, graph):
    state, seen = torch.zeros(2), []

    def work():
        seen.append(state.clone())
        state.add_(1)
        return (state,)

    made = Recording(work, [state], torch.cuda.Stream())
    assert torch.equal(seen[-1], torch.zeros(2))  # what the capture starts from
    assert len(seen) == encoder_program._WARM_UPS + 1
    assert diary == ["side waits for current", "current waits for side"]
    (first,) = made.replay()
    assert graph == ["capture begins", "capture ends", "replay"]
    state.add_(1)
    assert not torch.equal(first, state)


def test_a_warm_up_that_fails_leaves_no_trace_either(diary, graph):
    state = torch.zeros(2)

    def work():
        state.add_(1)
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        Recording(work, [state], torch.cuda.Stream())
    assert torch.equal(state, torch.zeros(2))


@pytest.fixture
def run():
    encoder = EmbeddedEncoder.load().ready()
    classifier = build_classifier(encoder, load_fashion_test().class_names, ("a photo of a {}.",))
    return pta.compile(encoder, pta.create_adapter("pta", classifier), batch=4)


@pytest.fixture
def pixels():
    return torch.from_numpy(load_fashion_test().images[:12, None].copy())


@pytest.fixture
def as_if_on_a_gpu(run, monkeypatch):
    monkeypatch.setattr(program.Program, "_on_gpu", True)
    uploads = SimpleNamespace(send=lambda given, into: into[: len(given)].copy_(given))
    monkeypatch.setattr(program.Program, "_uploads", uploads)
    monkeypatch.setattr(program, "Download", lambda tensor: SimpleNamespace(wait=lambda: tensor))
    return run


def test_a_stream_gives_everything_that_was_learned_before_it_fails(as_if_on_a_gpu, pixels):
    def failing():
        yield pixels[:4]
        yield pixels[4:8]
        raise OSError("the camera is gone")

    answers = []
    with pytest.raises(OSError, match="the camera is gone"):
        answers.extend(as_if_on_a_gpu.stream(failing()))
    assert len(answers) == 2
    assert as_if_on_a_gpu.adapter.position == 8


def test_a_stream_is_one_batch_behind_and_gives_the_last(as_if_on_a_gpu, pixels):
    seen = []
    for _ in as_if_on_a_gpu.stream(pixels.split(4)):
        seen.append(as_if_on_a_gpu.adapter.position)
    assert seen == [8, 12, 12]


@pytest.fixture
def recordings(monkeypatch):
    """All that are made: the state they were given, and how many results each replay gave."""
    made = []

    class Replays:
        def __init__(self, work, state, stream):
            self.work, self.state, self.results = work, list(state), []
            made.append(self)

        def replay(self):
            results = self.work()
            self.results.append(len(results))
            return results

    monkeypatch.setattr(program, "Recording", Replays)
    monkeypatch.setattr(program.Program, "_stream", None)
    return made


def test_it_records_again_when_the_state_is_elsewhere(as_if_on_a_gpu, pixels, recordings, monkeypatch):
    monkeypatch.setattr(program, "is_recordable", lambda adapter, batch: True)
    as_if_on_a_gpu._record()
    first = as_if_on_a_gpu(pixels[:4]).logits
    as_if_on_a_gpu(pixels[4:8])
    as_if_on_a_gpu.adapter.reset()  # in place
    torch.testing.assert_close(as_if_on_a_gpu(pixels[:4]).logits, first, atol=2e-3, rtol=0)
    assert len(recordings) == 1
    adapter = as_if_on_a_gpu.adapter
    before, adapter.knowledge = adapter.knowledge, adapter.knowledge.clone()  # held, so that its memory is not reused
    as_if_on_a_gpu(pixels[4:8])
    assert len(recordings) == 2
    assert before is not adapter.knowledge


def test_a_step_that_cannot_be_recorded_is_taken_outside_of_the_recording(as_if_on_a_gpu, pixels, recordings):
    expected = as_if_on_a_gpu.adapter.clone().step(as_if_on_a_gpu.encoder.encode(pixels[:6]))
    as_if_on_a_gpu._record()  # without kernels PTA finds its touches on the host
    given = [as_if_on_a_gpu(pixels[:4]).logits, as_if_on_a_gpu(pixels[4:6]).logits]
    torch.testing.assert_close(torch.cat(given), expected, atol=2e-3, rtol=0)
    (recording,) = recordings
    assert (recording.state, recording.results) == ([], [1, 1])  # features alone


def test_steps_and_refreshes_are_recorded_apart_and_replayed_when_the_host_counts_that_they_are_due(
    as_if_on_a_gpu, pixels, recordings, monkeypatch
):
    encoder, classifier = as_if_on_a_gpu.encoder, as_if_on_a_gpu.adapter.classifier
    adapter = pta.create_adapter("wpta", classifier, refresh_every=2)
    expected = adapter.clone().step(encoder.encode(pixels))
    with monkeypatch.context() as patch:
        patch.setattr(program.Program, "_on_gpu", False)
        run = pta.compile(encoder, adapter, batch=4)
    run._record()
    given = [run(pixels[:4]).logits, run(pixels[4:8]).logits, run(pixels[8:11]).logits, run(pixels[11:]).logits]
    torch.testing.assert_close(torch.cat(given), expected, atol=2e-3, rtol=0)
    first, second, refresh = recordings
    # the first batch is cut after its first sample; the last two are no full ones
    assert (first.results, second.results, refresh.results) == ([2], [2], [0, 0])
    assert first.state
    assert all(one is other for one, other in zip(first.state, refresh.state, strict=True))


def test_a_compiler_that_fails_is_done_without(run, pixels, monkeypatch):
    expected = run.encoder.encode(pixels[:4])

    def broken(*args):
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(torch, "compile", lambda part, dynamic, options: broken)
    with pytest.warns(UserWarning, match="torch.compile failed: no compiler$"):
        run._optimise()
    run._pixels.copy_(pixels[:4])
    torch.testing.assert_close(run._features(), expected, atol=1e-6, rtol=0)
