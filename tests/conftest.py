"""What every test runs under: one thread, the same examples for property tests every time; and what several use.

What `tests/other_machines.py` gives instead, to stand for another machine, is left as it is.
"""

import gc
import os
import sys
import warnings
from contextlib import closing
from types import SimpleNamespace

# Read when torch is loaded, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Some virtual machines announce AMX and stop a program that uses it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import settings
from shifted_memory import shift_memory

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are defined
settings.register_profile("usual", derandomize=True, deadline=None, max_examples=repeated(80))
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.register_profile("brief", derandomize=True, deadline=None, max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))

for package in os.environ.get("PTA_TEST_WITHOUT", "").split():
    sys.modules[package] = None  # importing it fails, as where it is not installed
if shift := int(os.environ.get("PTA_TEST_SHIFT", "0")):
    shift_memory(shift)


@pytest.fixture(scope="module", autouse=True)
def collect_after_module():
    """What a file's tests leave open is charged to its last test."""
    gc.freeze()  # what there is stays, so that collecting garbage takes milliseconds
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def collect_after_test(request):
    """What a test of the service, the client or the page leaves open is charged to that test."""
    yield
    if request.path.name.startswith("test_serve_") or request.path.parent.name == "attacks":
        gc.collect()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A cache that is not the user's, but for compiled code: processes that tests start would compile it anew."""
    from pta.door.private_cache import private_cache

    compiled, folder = private_cache("numba"), tmp_path_factory.getbasetemp() / "cache"
    folder.mkdir()
    if compiled is not None:
        (folder / "numba").symlink_to(compiled)
    os.environ["PTA_CACHE"] = str(folder)


@pytest.fixture
def pta(monkeypatch, capsys, tmp_path, tmp_path_factory):
    """The command in this process, in a folder of its own: `pta("eval", …)` gives what a process would."""
    from pta.cli import main

    def call(*arguments, stdin=b"", cwd=tmp_path):
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["pta", *map(str, arguments)])
        (tmp_path_factory.getbasetemp() / "stdin").write_bytes(stdin)
        with (tmp_path_factory.getbasetemp() / "stdin").open("rb") as file:
            monkeypatch.setattr(sys, "stdin", file)
            with warnings.catch_warnings(), pytest.raises(SystemExit) as stop:  # none was shown before, as in a process
                main()
        said = capsys.readouterr()
        return SimpleNamespace(returncode=stop.value.code, stdout=said.out, stderr=said.err)

    return call


@pytest.fixture(scope="session")
def commands():
    """The command in processes of its own, for what only a process has: signals, pipes, an end."""
    from killable import Commands

    with closing(Commands()) as commands:
        yield commands


@pytest.fixture
def store(monkeypatch):
    """An object store that fails when a test says so."""
    from faulty_storage import faulty_storage

    with faulty_storage(monkeypatch) as store:
        yield store


@pytest.fixture(scope="session")
def pets(tmp_path_factory):
    """A feature file of four classes that zero-shot often mistakes."""
    rng = np.random.default_rng(1)
    anchors, labels = rng.standard_normal((4, 16)), rng.integers(4, size=300)
    path = tmp_path_factory.mktemp("features") / "pets.npz"
    noisy = anchors[labels] + 2.5 * rng.standard_normal((300, 16)) + 1
    names = np.array(["cat", "dog", "newt", "owl"])
    np.savez(path, image_features=noisy, text_features=anchors, labels=labels, classnames=names)
    return path


@pytest.fixture(scope="session")
def served():
    """The packaged model and its classes, as a service has them."""
    from photos import FASHION

    from pta.data.prompts import build_classifier, load_templates
    from pta.models import load_encoder
    from pta.serve.streams.served_model import ServedModel

    encoder = load_encoder("embedded", device="cpu")
    classifier = build_classifier(encoder, FASHION.class_names, load_templates("clip", encoder.modality.prompts))
    return ServedModel(classifier, "pta", encoder=encoder)


@pytest.fixture(scope="session")
def encoders(tmp_path_factory):
    """Small random models of every kind, and the packaged one."""
    from hf_models import write_hf_clip, write_hf_siglip, write_hf_siglip2
    from openai_checkpoints import random_state

    from pta.models import EmbeddedEncoder
    from pta.models.clip.encoder import ClipEncoder
    from pta.models.huggingface import HuggingFaceEncoder

    folder = tmp_path_factory.mktemp("models")
    written = {"clip of transformers": write_hf_clip, "siglip": write_hf_siglip, "siglip2": write_hf_siglip2}
    return {
        "clip": ClipEncoder(random_state("ViT"), quick_gelu=True).ready(),
        "clip resnet": ClipEncoder(random_state("RN50"), quick_gelu=True).ready(),
        "embedded": EmbeddedEncoder.load().ready(),
        **{kind: HuggingFaceEncoder.load(str(write(folder / kind))).ready() for kind, write in written.items()},
    }
