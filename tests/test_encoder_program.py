"""A model that is compiled while it works: what it gives, and when it is compiled, recorded and replayed.

On a GPU the same claims are tested with the real compiler; elsewhere with one that changes nothing.
"""

import importlib
import os
import threading
from types import SimpleNamespace

import pytest
import torch
from processes import PATIENCE
from random_clip import random_state
from torch._dynamo.testing import CompileCounter

from pta.data.fashion import load_fashion_test
from pta.errors import InvalidParameter
from pta.models import EmbeddedEncoder
from pta.models.clip.encoder import ClipEncoder
from pta.run import gpu
from pta.run.gpu import encoder_program
from pta.run.gpu.encoder_program import EncoderProgram, can_be_compiled

HAS_GPU = torch.cuda.is_available()
COMPILE = torch.compile
PIXELS = torch.from_numpy(load_fashion_test().images[:22, None].copy())


@pytest.fixture(scope="module")
def encoder():
    return EmbeddedEncoder.load().ready("cuda" if HAS_GPU else "cpu")


@pytest.fixture
def compiler(monkeypatch):
    """How often something was compiled, recorded and replayed; the compiler waits until it may go on."""
    happened = SimpleNamespace(compiled=0, recorded=0, replayed=0, may_go_on=threading.Event(), failure=None)
    happened.may_go_on.set()

    def compile(plain, dynamic, options):
        def compiled(raw):
            if threading.current_thread().name == "compile":
                happened.may_go_on.wait(PATIENCE)
                happened.compiled += 1
                if happened.failure:
                    raise happened.failure
            return plain(raw)

        return compiled

    class Recording:
        def __init__(self, work, state, stream):
            self.work = work
            happened.recorded += 1

        def replay(self):
            happened.replayed += 1
            return tuple(one.clone() for one in self.work())

    if not HAS_GPU:
        monkeypatch.setattr(encoder_program, "can_be_compiled", lambda encoder: True)
        monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
        uploads = SimpleNamespace(send=lambda given, into: into[: len(given)].copy_(given))
        monkeypatch.setattr(EncoderProgram, "_uploads", uploads)
    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr(encoder_program, "Recording", Recording)
    monkeypatch.setattr(encoder_program, "COMPILED_FROM", 8)
    return happened


def assert_features(encoder, given, pixels=PIXELS):
    torch.testing.assert_close(torch.cat(given).cpu(), encoder.encode(pixels).cpu(), atol=1e-5, rtol=0)


def test_without_a_gpu_nothing_is_compiled(encoder):
    assert can_be_compiled(encoder) == HAS_GPU


def test_it_begins_as_it_is_and_goes_on_compiled(encoder, compiler):
    compiler.may_go_on.clear()
    program = EncoderProgram(encoder, 4, expected=22)
    given = [program(PIXELS[:4]), program(PIXELS[4:8])]
    assert (compiler.recorded, compiler.replayed) == (0, 0)
    compiler.may_go_on.set()
    program._compiling.thread.join()
    given += [program(part) for part in PIXELS[8:].split(4)]  # the last is no full batch
    assert (compiler.compiled, compiler.recorded, compiler.replayed) == (1, 1, 4)
    assert_features(encoder, given)


@pytest.mark.parametrize("expected", [None, 7])
def test_a_short_job_is_not_compiled(encoder, compiler, expected):
    program = EncoderProgram(encoder, 4, expected)
    assert_features(encoder, [program(PIXELS[:4]), program(PIXELS[4:7])], PIXELS[:7])
    assert program._compiling is None


def test_one_of_unknown_length_is_compiled_when_it_has_become_long(encoder, compiler):
    program = EncoderProgram(encoder, 4)
    for part in PIXELS.split(4)[:2]:
        program(part)
    assert program._compiling is None
    program(PIXELS[8:12])
    assert program._compiling is not None


def test_features_of_one_file_are_all_made_by_one_program(encoder, compiler):
    program = EncoderProgram(encoder, 4, expected=22, whole=True)
    assert_features(encoder, [program(part) for part in PIXELS.split(4)])
    assert (compiler.compiled, compiler.recorded, compiler.replayed) == (1, 1, 6)


@pytest.mark.parametrize(("whole", "replayed"), [(False, 5), (True, 6)])
def test_a_model_with_kernels_of_its_own_is_recorded_as_it_is(encoder, compiler, monkeypatch, whole, replayed):
    monkeypatch.setattr(EmbeddedEncoder, "has_kernels_for", lambda encoder, batch: batch == 4)
    program = EncoderProgram(encoder, 4, expected=22, whole=whole)
    assert_features(encoder, [program(part) for part in PIXELS.split(4)])
    assert (compiler.compiled, compiler.recorded, compiler.replayed) == (0, 1, replayed)


def test_a_model_with_kernels_is_recorded_when_a_job_has_become_long_and_again_when_its_weights_move(
    compiler, monkeypatch
):
    encoder = EmbeddedEncoder.load().ready("cuda" if HAS_GPU else "cpu")
    monkeypatch.setattr(EmbeddedEncoder, "has_kernels_for", lambda encoder, batch: True)
    program = EncoderProgram(encoder, 4)
    given = [program(part) for part in PIXELS[:12].split(4)]
    assert (compiler.recorded, compiler.replayed) == (1, 1)
    kept = [weight.data for weight in encoder.parameters()]  # so that the new ones lie elsewhere
    encoder.double().float()
    given += [program(part) for part in PIXELS[12:].split(4)]  # the last is no full batch
    assert_features(encoder, given)
    assert (compiler.compiled, compiler.recorded, compiler.replayed) == (0, 2, 4)
    assert kept


def test_a_model_that_is_converted_to_a_precision_without_kernels_is_compiled(compiler, monkeypatch):
    encoder = EmbeddedEncoder.load().ready("cuda" if HAS_GPU else "cpu")
    monkeypatch.setattr(EmbeddedEncoder, "has_kernels_for", lambda encoder, batch: encoder.dtype == torch.float32)
    program = EncoderProgram(encoder, 4, expected=22, whole=True)
    program(PIXELS[:4])
    assert (compiler.compiled, compiler.recorded) == (0, 1)
    encoder.double()
    assert_features(encoder, [program(PIXELS[:4])], PIXELS[:4])
    assert (compiler.compiled, compiler.recorded) == (1, 2)


def test_what_was_compiled_in_the_background_is_not_compiled_again_for_the_batches(encoder, compiler, monkeypatch):
    counter = CompileCounter()
    monkeypatch.setattr(
        torch, "compile", lambda plain, dynamic, options: COMPILE(plain, dynamic=dynamic, backend=counter)
    )
    program = EncoderProgram(encoder, 4, expected=22, whole=True)
    assert_features(encoder, [program(part) for part in PIXELS.split(4)])
    assert (compiler.recorded, compiler.replayed) == (1, 6)
    assert counter.frame_count == 1


def test_a_compiler_that_fails_leaves_the_model_as_it_is_but_does_not_make_half_a_file(encoder, compiler):
    compiler.failure = RuntimeError("no such instruction\nand more")
    compiler.may_go_on.clear()
    program = EncoderProgram(encoder, 4, expected=22)
    given = [program(PIXELS[:4])]
    compiler.may_go_on.set()
    program._compiling.thread.join()
    with pytest.warns(UserWarning, match=r"torch.compile failed for .*: no such instruction; it runs uncompiled"):
        given += [program(PIXELS[4:8])]
    assert_features(encoder, given, PIXELS[:8])
    with pytest.raises(InvalidParameter, match="no such instruction; use --no-compile"):
        EncoderProgram(encoder, 4, expected=22, whole=True)(PIXELS[:4])


def test_more_than_a_batch_and_another_shape_are_taken_too(encoder, compiler):
    program = EncoderProgram(encoder, 4, expected=22, whole=True)
    assert_features(encoder, [program(PIXELS)])
    ready = encoder.preprocess.normalise(PIXELS)
    assert_features(encoder, [program(ready)])
    assert compiler.replayed == 6


def test_weights_that_were_moved_are_recorded_again(compiler):
    encoder = EmbeddedEncoder.load().ready("cuda" if HAS_GPU else "cpu")
    program = EncoderProgram(encoder, 4, expected=22, whole=True)
    program(PIXELS[:4])
    kept = [weight.data for weight in encoder.parameters()]  # so that the new ones lie elsewhere
    encoder.double().float()
    assert_features(encoder, [program(PIXELS[:4])], PIXELS[:4])
    assert compiler.recorded == 2
    assert kept


def test_compiling_is_broken_off_when_the_interpreter_ends(encoder, compiler):
    compiler.may_go_on.clear()
    program = EncoderProgram(encoder, 4, expected=22)
    program(PIXELS[:4])
    threading.Timer(0.1, compiler.may_go_on.set).start()
    program._compiling._break_off()
    assert not program._compiling.thread.is_alive()


@pytest.mark.skipif(not HAS_GPU, reason="no GPU")
@pytest.mark.parametrize("whole", [False, True])
def test_on_a_gpu_the_compiled_model_gives_what_the_model_gives(encoder, monkeypatch, whole):
    monkeypatch.setattr(encoder_program, "COMPILED_FROM", 8)
    program = EncoderProgram(encoder, 4, expected=22, whole=whole)
    given = [program(PIXELS[:4])]
    program._compiling.thread.join()
    given += [program(part) for part in PIXELS[4:].split(4)]
    assert program._recording is not None
    torch.testing.assert_close(torch.cat(given).cpu(), encoder.encode(PIXELS).cpu(), atol=1e-3, rtol=0)


@pytest.mark.skipif(not HAS_GPU, reason="no GPU")
def test_on_a_gpu_a_vision_transformer_that_is_recorded_as_it_is_gives_the_same(monkeypatch):
    encoder = ClipEncoder(random_state("ViT", small=False), quick_gelu=True).ready("cuda", torch.float16)
    pixels = torch.randint(0, 256, (100, 3, 224, 224), dtype=torch.uint8)
    monkeypatch.setattr(encoder_program, "COMPILED_FROM", 8)
    program = EncoderProgram(encoder, 64, expected=100, whole=True)
    found = torch.cat([program(part) for part in pixels.split(64)])
    assert program._recording is not None
    assert (program._compiling is None) == encoder.has_kernels_for(64)
    assert (found * encoder.encode(pixels)).sum(dim=1).min() > 0.99999


@pytest.mark.parametrize(("given", "expected"), [(None, "32"), ("8", "8")])
def test_streams_do_not_share_a_queue_unless_the_user_says_how_many_there_are(monkeypatch, given, expected):
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", given or "")  # so that it is restored
    if given is None:
        monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS")
    importlib.reload(gpu)
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == expected
