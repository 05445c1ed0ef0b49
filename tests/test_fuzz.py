"""Damaged files, states, segments and samples: each is read or refused in one line, and a refusal changes nothing.

Hypothesis draws the damage; `make test-fuzz` draws more. `test_serve_http_fuzz.py` has requests to the service.
"""

import io
import json
import os
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from photos import decode_image
from safetensors.torch import load, save
from valid_files import FILES, NAMES, classifier, learned, samples, segment, toy

from pta import PtaError, Segment, compose, create_adapter, list_adapters, load_adapter
from pta.cli.options import read_classes
from pta.data.features import load_features
from pta.data.open import open_samples
from pta.data.prompts import load_descriptions, load_templates
from pta.door.images.frames import split_frames
from pta.door.points.reading import read_cloud
from pta.measure.contenders import read_contenders
from pta.measure.reproduce.declaration import load_experiment
from pta.measure.result_store import ResultStore
from pta.models import load_encoder

EXAMPLES = int(os.environ.get("PTA_FUZZ", repeated(40)))
fuzzed = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
ODD = st.sampled_from(
    [None, True, -1, 0, 2**63, 10**400, 1e308, float("nan"), float("inf"), -0.0, "", "\0", "a\nb", "é\u202e", [], {}]
)
ODD |= st.recursive(ODD, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3))
TENSORS = st.sampled_from(
    [
        *(lambda one, number=number: put(one, number) for number in (np.nan, np.inf, -np.inf, 1e30, -1.0, 1e-45, 0.0)),
        *(lambda one, kind=kind: one.to(kind) for kind in (torch.float16, torch.float64, torch.int64, torch.bool)),
        lambda one: one[None],
        lambda one: one.flatten(),
        lambda one: one[:0] if one.ndim else one,
        lambda one: one[:-1] if one.ndim else one[None],
        lambda one: torch.cat([one, one]) if one.ndim else one[None],
        lambda one: one.mT.contiguous() if one.ndim > 1 else one,
        lambda one: one * 1.01,
        lambda one: one * 1e6,
    ]
)
"""What makes another tensor of one."""


def put(tensor, number):
    """A copy with another number at the front."""
    changed = tensor.double().clone() if tensor.is_floating_point() else tensor.clone()
    flat = changed.view(-1)
    flat[: max(1, len(flat) // 3)] = (
        number if tensor.is_floating_point() else int(np.clip(np.nan_to_num(number), -99, 99))
    )
    return changed.to(tensor.dtype)


@st.composite
def damaged(draw, content):
    """Bytes with something cut out, put in, doubled or overwritten."""
    start = draw(st.integers(0, len(content)))
    end = min(len(content), start + draw(st.sampled_from([0, 1, 4, 100, len(content)])))
    parts = (b"", b"\0" * 8, b"\xff" * 8, b"99999999999", b"[" * 9999, content[start:end] * 2)
    new = draw(st.sampled_from(parts) | st.binary(max_size=16))
    return content[:start] + new + content[end:]


@st.composite
def altered(draw, value):
    """A JSON value with one thing in it changed or missing."""
    if not value or not isinstance(value, dict | list) or draw(st.integers(0, 4)) == 0:
        return draw(ODD)
    place = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
    changed = value.copy()
    if draw(st.booleans()):
        changed[place] = draw(altered(value[place]))
    else:
        del changed[place]
    return changed


@st.composite
def other_tensors(draw, tensors):
    """The same, one of them altered or missing."""
    name = draw(st.sampled_from(sorted(tensors)))
    if draw(st.integers(0, 9)) == 0:
        return {key: one for key, one in tensors.items() if key != name}
    return tensors | {name: draw(TENSORS)(tensors[name])}


@st.composite
def other_file(draw, path):
    """The content of a valid file, damaged as bytes or in what it holds."""
    content = path.read_bytes()
    if draw(st.booleans()):
        return draw(damaged(content))
    match path.suffix:
        case ".json":
            return json.dumps(draw(altered(json.loads(content)))).encode()
        case ".npz":
            arrays = {name: torch.from_numpy(one) for name, one in np.load(path).items() if one.dtype.kind in "fi"}
            np.savez(written := io.BytesIO(), **{"classnames": np.array(NAMES)} | draw(other_tensors(arrays)))
            return written.getvalue()
        case ".safetensors":
            start = 8 + int.from_bytes(content[:8], "little")
            texts = json.loads(content[8:start]).get("__metadata__", {})
            held = {key: json.loads(text) for key, text in texts.items()}
            if held and draw(st.booleans()):
                key = draw(st.sampled_from(sorted(held)))
                held[key] = draw(altered(held[key]))
                return save(load(content), {key: json.dumps(value) for key, value in held.items()})
            return save(draw(other_tensors(load(content))), texts)
    lines = content.split(b"\n")
    place = draw(st.integers(0, len(lines) - 1))
    return b"\n".join([*lines[:place], draw(damaged(lines[place])), *lines[place + 1 :]])


@contextmanager
def refused_in_one_line(capfd, folder):
    """Whatever is done succeeds or is refused; it prints nothing, leaves no thread and writes into its folder alone."""
    threads, written, said = threading.active_count(), [], "nothing"
    WATCHED.append((str(folder), written))
    try:
        yield
    except PtaError as error:
        said = str(error)
    finally:
        WATCHED.clear()
    assert len(said.splitlines()) == 1, said
    assert (threading.active_count() <= threads, written, *capfd.readouterr()) == (True, [], "", "")


WATCHED = []  # while something is done: its folder, and the files beyond it that are opened to be written


@sys.addaudithook
def note_writing(event, arguments):
    if event == "open" and WATCHED and isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        folder, written = WATCHED[-1]
        of_tools = any(name in arguments[0] for name in ("__pycache__", ".hypothesis"))  # they keep what they find
        if not (arguments[0].startswith((folder, "/dev/", "/proc/")) or of_tools):
            written.append(arguments[0])


# -- files -------------------------------------------------------------------------------------------------------------


def read_all(path):
    found = open_samples(path, class_names=NAMES)
    return found.fingerprint, [sample.read() for sample in found.samples]


READERS = {
    "features.npz": lambda path: load_features(path).fingerprint,
    "features.safetensors": lambda path: load_features(path).fingerprint,
    "shard.tar": read_all,
    "clouds.h5": read_all,
    "list.csv": read_all,
    **{f"cloud.{kind}": lambda path: read_cloud(path.read_bytes(), "x") for kind in ("xyz", "off", "obj", "ply")},
    **{f"picture.{kind}": lambda path: decode_image(path.read_bytes(), "x") for kind in ("png", "jpeg", "gif", "tiff")},
    "frames.bin": lambda path: list(split_frames(io.BytesIO(path.read_bytes()))),
    "weights.pt": lambda path: load_encoder(f"file:{path}#quickgelu").encode_texts(["a cat"]),
    "openai.pt": lambda path: load_encoder(f"file:{path}").encode_texts(["a cat"]),
    "records.json": read_contenders,
    "mine.toml": lambda path: load_experiment(str(path)),
    "templates.json": lambda path: load_templates(str(path)),
    "templates.txt": lambda path: load_templates(str(path)),
    "descriptions.json": load_descriptions,
    "names.txt": lambda path: read_classes(str(path)),
    "segment.safetensors": lambda path: compose(Segment.load(path), segment()),
    "results.sqlite": lambda path: len(ResultStore(path.parent)),
}


@pytest.mark.parametrize("name", READERS)
@fuzzed
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(name, data, tmp_path, capfd, valid):
    READERS[name](valid(name))
    capfd.readouterr()
    path = tmp_path / name
    path.write_bytes(data.draw(other_file(valid(name))))
    with refused_in_one_line(capfd, tmp_path):
        READERS[name](path)


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """The valid file of a name, made once."""
    folder = tmp_path_factory.mktemp("valid")

    def made(name):
        if not (folder / name).exists():
            FILES[name](folder / name)
        return folder / name

    return made


COMMANDS = {
    "features.npz": "eval --features {} --method pta --method zero --seed 1 --json out.json",
    "records.json": "compare {} --a clip --b pta --resamples 1000",
    "mine.toml": "reproduce {} --offline --out results --seeds 1",
    "live.safetensors": "predict picture.png --classes coat,bag,sneaker --model embedded --state {} --out rows.jsonl",
    "state-wpta.safetensors": "state show {} --json -",
    "segment.safetensors": "state merge {0} {0} --out merged.safetensors",
    "shard.tar": "extract {} --out f.safetensors --model embedded --classes coat,bag,sneaker --on-error skip",
    "clouds.h5": "corrupt-points {} out --seed 1 --points 520 --json -",
}


@pytest.mark.parametrize("name", COMMANDS)
@settings(fuzzed, max_examples=max(2, EXAMPLES // 4))
@given(data=st.data())
def test_a_command_says_in_one_line_what_is_wrong_with_a_file(name, data, tmp_path, pta, valid):
    path = tmp_path / name
    path.write_bytes(data.draw(other_file(valid(name))))
    (tmp_path / "picture.png").write_bytes(valid("picture.png").read_bytes())
    done = pta(*COMMANDS[name].format(path).split())
    assert done.returncode in (0, 1, 2), done.stderr
    if done.returncode:
        assert "Traceback" not in done.stderr
        assert done.stderr.strip().splitlines()[-1].startswith("pta: "), done.stderr
    assert all(sign.isprintable() or sign == "\n" for sign in done.stderr)


# -- states, segments and samples --------------------------------------------------------------------------------------


def bits(adapter):
    return [(name, one.dtype, one.shape, one.numpy().tobytes()) for name, one in adapter.state().items()]


def answer_finitely(adapter):
    """After something was accepted, the state has no NaN and the answers are finite."""
    assert not any(bool(tensor.isnan().any()) for tensor in adapter.state().values())
    assert bool(adapter.clone().predict(samples()[12:16]).isfinite().all())


@pytest.mark.parametrize("method", list_adapters())
@settings(fuzzed, max_examples=max(3, EXAMPLES // 2))
@given(data=st.data())
def test_a_damaged_state_is_restored_or_refused(method, data, tmp_path, capfd, valid):
    path, adapter = tmp_path / "state.safetensors", learned(method).clone()
    path.write_bytes(data.draw(other_file(valid(f"state-{method}.safetensors"))))
    with refused_in_one_line(capfd, tmp_path):
        answer_finitely(load_adapter(path, data.draw(st.sampled_from([classifier(), None])), model=toy()))
    snapshot, before = adapter.snapshot(), bits(adapter)
    accepted = False
    with refused_in_one_line(capfd, tmp_path):
        adapter.restore(replace(snapshot, tensors=data.draw(other_tensors(dict(snapshot.tensors)))))
        accepted = True
    assert accepted or bits(adapter) == before
    answer_finitely(adapter)


@pytest.mark.parametrize("method", list_adapters())
@settings(fuzzed, max_examples=max(3, EXAMPLES // 2))
@given(data=st.data())
def test_odd_samples_are_learned_or_refused(method, data, tmp_path, capfd):
    adapter, given = learned(method).clone(), samples()[4:10].tensors()
    before, accepted = bits(adapter), False
    with refused_in_one_line(capfd, tmp_path):
        odd = data.draw(other_tensors(given))
        adapter.step(type(samples()).of(**odd, normalise=data.draw(st.booleans())) if "features" in odd else None)
        accepted = True
    assert accepted or bits(adapter) == before
    answer_finitely(adapter)


@fuzzed
@given(data=st.data())
def test_a_damaged_segment_is_applied_or_refused(data, tmp_path, capfd, valid):
    adapter = create_adapter("pta", classifier())
    (tmp_path / "segment.safetensors").write_bytes(data.draw(other_file(valid("segment.safetensors"))))
    before, accepted = bits(adapter), False
    with refused_in_one_line(capfd, tmp_path):
        adapter.apply(Segment.load(tmp_path / "segment.safetensors"))
        accepted = True
    assert accepted or bits(adapter) == before
    answer_finitely(adapter)


@pytest.mark.parametrize("method", list_adapters())
@settings(fuzzed, max_examples=max(3, EXAMPLES // 2))
@given(data=st.data())
def test_odd_parameters_are_accepted_or_refused(method, data, tmp_path, capfd):
    declared = type(learned(method)).declared
    names = data.draw(st.lists(st.sampled_from([*declared, "nothing"]), max_size=3, unique=True))
    with refused_in_one_line(capfd, tmp_path):
        given = {name: data.draw(ODD) for name in names}
        create_adapter(method, classifier(), model=toy(), source=samples(), **given).step(samples()[:4])
