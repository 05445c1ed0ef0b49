"""Feature files: both formats, and every way they can be wrong."""

import errno
import json
import os
import re
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile_archives import records_of, write_records
from hypothesis import given
from hypothesis import strategies as st
from refusals import unless_refused
from safetensors.torch import load_file, save_file

from pta import PTA, TDA, PtaError, Segment, load_adapter
from pta.data.features import load_features
from pta.door.files import join_tensors, load_tensors, read_text
from pta.errors import InvalidParameter, InvalidSamples, MachineFailure, UnreadableFile

OPTIONAL = {name: np.ones((6, 2, 4), np.float32) for name in ("view_features", "patch_features", "generated_features")}
OPTIONAL["pixels"] = np.ones((6, 1, 2, 2), np.uint8)


def save_features(path, metadata=None, **changes):
    """A feature file of the format that its name ends in; without the arrays that are None."""
    rng = np.random.default_rng(1)
    usual = {
        "image_features": rng.standard_normal((6, 4)).astype(np.float16),
        "text_features": rng.standard_normal((3, 4)).astype(np.float32),
        "labels": np.array([0, 1, 2, 0, 1, 2]),
        "classnames": np.array(["cat", "dog", "newt"]),
    }
    arrays = {key: value for key, value in (usual | changes).items() if value is not None}
    if path.suffix == ".npz":
        np.savez_compressed(path, **arrays)
    else:
        names = json.dumps(arrays.pop("classnames").tolist())
        tensors = {key: torch.as_tensor(value) for key, value in arrays.items()}
        save_file(tensors, path, metadata={"classnames": names} | (metadata or {}))
    return path


@pytest.fixture
def write(tmp_path):
    return partial(save_features, tmp_path / "pets.npz")


@pytest.fixture
def write_safetensors(tmp_path):
    return partial(save_features, tmp_path / "pets.safetensors")


def test_both_formats_hold_the_same_data(write, write_safetensors):
    one, other = load_features(write()), load_features(write_safetensors())
    assert one.name == other.name == "pets"
    assert one.classifier.fingerprint == other.classifier.fingerprint
    assert one.classifier.class_names == ("cat", "dog", "newt")
    assert torch.equal(one.samples.features, other.samples.features)
    assert one.labels.tolist() == other.labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_labels_are_optional_and_the_scale_is_100_unless_the_file_says_otherwise(write):
    without = load_features(write(labels=None))
    assert without.labels is None
    assert without.classifier.scale == 100.0
    assert load_features(write(scale=np.float32(12.5))).classifier.scale == 12.5


@pytest.mark.parametrize(
    ("changes", "kind", "complaint"),
    [
        ({"image_features": None}, UnreadableFile, "no image_features;.*this one has 'classnames'"),
        ({"classnames": None, "text_features": None}, UnreadableFile, "no text_features and no classnames"),
        ({"text_features": np.ones((3, 5))}, InvalidSamples, "4 dimensions but text_features 5"),
        ({"image_features": np.full((6, 4), np.nan)}, InvalidSamples, "row 0 .* not finite"),
        ({"image_features": np.zeros((6, 4))}, InvalidSamples, "row 0 .* zero"),
        ({"image_features": np.ones((0, 4)), "labels": None}, InvalidSamples, "no samples"),
        ({"labels": np.array([0, 1, 2, 0, 1, 3])}, InvalidSamples, "label 3 is out of range"),
        ({"labels": np.array([0, 1, 2, 0, 1, -1])}, InvalidSamples, "label -1 is out of range"),
        ({"labels": np.array([0, 1])}, InvalidSamples, "one for each of the 6"),
        ({"labels": np.ones(6)}, InvalidSamples, "whole numbers"),
        ({"classnames": np.array(["cat", "dog"])}, InvalidParameter, "3 anchors but 2"),
        ({"text_features": np.ones((1, 4)), "classnames": np.array(["cat"])}, InvalidParameter, "at least two"),
        ({"labels": np.array(["0"] * 6)}, InvalidSamples, "labels cannot be read as numbers"),
        ({"labels": np.ones(6, bool)}, InvalidSamples, "whole numbers"),
        ({"labels": np.full(6, 2**64 - 1, np.uint64)}, InvalidSamples, "out of range"),
        ({"labels": np.array(0)}, InvalidSamples, "one for each of the 6"),
        ({"scale": np.ones(2)}, InvalidSamples, "scale must be a single number"),
        ({"scale": np.array("5")}, InvalidSamples, "scale must be a single number"),
        ({"scale": np.array(1j)}, InvalidSamples, "scale must be a single number"),
        ({"scale": np.array(1e39)}, InvalidParameter, "scale must be a number above 0"),
        ({"bias": np.array(np.nan)}, InvalidSamples, "bias must be a single number"),
        ({"classnames": np.array("cat")}, InvalidParameter, "list of texts"),
        ({"classnames": np.array([1, 2, 3])}, InvalidParameter, "list of texts"),
        ({"classnames": np.array([["cat"], ["dog"], ["newt"]])}, InvalidParameter, "list of texts"),
        ({"classnames": np.array([b"cat", b"dog", b"newt"])}, InvalidParameter, "list of texts"),
        ({"image_features": np.zeros((6, 4), "V8")}, InvalidSamples, "cannot be read as numbers"),
        ({"image_features": np.full((6, 4), 1e30)}, InvalidSamples, "too large"),
        ({"image_features": np.ones((6, 4), complex)}, InvalidSamples, "real numbers"),
        ({"view_features": np.ones((6, 2, 4), np.int64)}, InvalidSamples, "floating-point"),
        ({"patch_features": np.ones((5, 2, 4))}, InvalidSamples, "patches have shape"),
        ({"generated_features": np.ones((6, 2, 5))}, InvalidSamples, "generated have shape"),
        ({"pixels": np.ones(6, np.uint8)}, InvalidSamples, "a row for each of 6 samples"),
        ({"classnames": np.array(["cat", "dog", "newt"], dtype=object)}, UnreadableFile, "Python objects"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_reason(write, changes, kind, complaint):
    with pytest.raises(kind, match=rf"pets\.npz(: | cannot).*{complaint}"):
        load_features(write(**changes))


@pytest.mark.parametrize("changed", ["image_features", "text_features", "labels", *OPTIONAL])
def test_the_fingerprint_follows_every_array(write, changed):
    first = load_features(write(**OPTIONAL)).fingerprint
    with np.load(write(**OPTIONAL)) as arrays:
        other = arrays[changed]
    other.flat[0] = 2
    assert load_features(write(**OPTIONAL | {changed: other})).fingerprint != first
    if changed in OPTIONAL:
        assert load_features(write(**OPTIONAL | {changed: None})).fingerprint != first


@pytest.mark.parametrize("kept", [0, 10, 200])
def test_a_truncated_file_is_refused(write, kept):
    path = write()
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load_features(path)


def test_other_endings_are_refused(tmp_path):
    (tmp_path / "table.csv").write_text("a,b")
    with pytest.raises(UnreadableFile, match=r"ends in \.npz or \.safetensors"):
        load_features(tmp_path / "table.csv")


@pytest.mark.parametrize(
    "path", ["nothing.npz", 5, None, b"pets.npz", "x" * 5000 + ".npz", "\0.npz", ["pets.npz"]], ids=repr
)
def test_what_is_no_path_of_a_file_is_refused(path):
    with pytest.raises(UnreadableFile, match="no such feature file"):
        load_features(path)


def test_a_file_that_unpacks_to_too_much_is_refused_unread(write, write_safetensors, monkeypatch):
    paths = write(), write_safetensors()
    monkeypatch.setattr("pta.core.limits.available_memory", lambda: 100)
    for path in paths:
        with pytest.raises(UnreadableFile, match=rf"{path.name} unpacks to .* GiB of memory are available"):
            load_features(path)


# -- safetensors ---------------------------------------------------------------------------------------------------


NO_NAMES = ["5", "null", '"cat"', "[1, 2, 3]", '[["cat"], "dog", "newt"]', "{}", "[" * 10**5, "not JSON", "[NaN, 1, 2]"]
NO_WORDS = [{"images": []}, {"images": {"architecture": 5}}, {"images": None}, {"dataset": ["dtd"]}, {"dataset": None}]


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        *(("classnames", names, "") for names in NO_NAMES),
        *(("about", json.dumps({"kind": "features", **about}), "does not name dataset") for about in NO_WORDS),
    ],
    ids=repr,
)
def test_class_names_and_descriptions_of_the_wrong_kind_are_one_line(write_safetensors, key, text, complaint):
    path = write_safetensors({key: text})
    with pytest.raises(PtaError, match=rf"pets\.safetensors.*{complaint}"):
        load_features(path)


@pytest.mark.parametrize("about", ["[" * 10**5, "5", "[]", '{"kind": "something else"}'])
def test_features_with_no_description_of_ours_are_named_after_their_file(write_safetensors, about):
    assert load_features(write_safetensors({"about": about})).dataset == "pets"


# -- what is read is owned -----------------------------------------------------------------------------------------


@pytest.mark.skipif("PTA_TEST_SHIFT" in os.environ, reason="memory is shifted on purpose")
def test_everything_loaded_is_aligned_like_any_tensor(write, write_safetensors, tmp_path):
    for path in (write(**OPTIONAL), write_safetensors({"longer": "header"}, **OPTIONAL)):
        data = load_features(path)
        for tensor in (*data.samples.tensors().values(), data.classifier.anchors):
            assert tensor.data_ptr() % 64 == 0
        assert data.labels.ctypes.data % 64 == 0
    adapter = TDA(data.classifier)
    adapter.save(tmp_path / "state")
    for tensor in load_tensors(tmp_path / "state", kind="state")[0].values():
        assert tensor.data_ptr() % 64 == 0


def test_files_that_are_overwritten_or_truncated_change_nothing_that_was_loaded(write, write_safetensors, tmp_path):
    npz, safetensors = write(**OPTIONAL), write_safetensors(**OPTIONAL)
    data = load_features(safetensors)
    state, segment = tmp_path / "state", tmp_path / "segment"
    PTA(data.classifier).save(state)
    PTA(data.classifier).summarise(data.samples).save(segment)
    loaded, adapter, part = load_features(npz), load_adapter(state, data.classifier), Segment.load(segment)

    def everything():
        read = [replace(one).fingerprint for one in (data, loaded)]  # computed anew
        return read, adapter.predict(data.samples).tolist(), part.tail.tolist()

    expected = everything()
    for path in (npz, safetensors, state, segment):
        path.write_bytes(bytes(path.stat().st_size))
    assert everything() == expected
    for path in (npz, safetensors, state, segment):
        os.truncate(path, 0)
    assert everything() == expected


# -- damaged archives ----------------------------------------------------------------------------------------------


def rewrite_member(path, name, change):
    """Replace a member of an npz file by what `change` makes of its bytes."""
    members = records_of(path)
    write_records(path, members | {name: change(members[name])})


@pytest.mark.parametrize("shape", ["(9999999999999, 4)", "(60000, 4)", "(5, 4)", "(-6, -4)", "()"])
def test_a_header_that_disagrees_with_its_member_is_refused_before_memory_is_taken(write, shape, monkeypatch):
    path = write()
    rewrite_member(path, "image_features.npy", lambda data: data.replace(b"(6, 4)", shape.encode()))
    monkeypatch.setattr("torch.empty", lambda size, **_: pytest.fail(f"{size} bytes taken"))
    rewrite_member(path, "text_features.npy", lambda data: data[:5])  # never gets there
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load_features(path)


def test_a_header_is_not_read_further_than_headers_are_long(write, monkeypatch):
    path, longest = write(), 0
    says = (10**7).to_bytes(4, "little")
    rewrite_member(path, "image_features.npy", lambda _: b"\x93NUMPY\2\0" + says + b" " * 10**7)
    read = zipfile.ZipExtFile.read

    def noted(file, size=-1):
        nonlocal longest
        part = read(file, size)
        longest = max(longest, len(part))
        return part

    monkeypatch.setattr(zipfile.ZipExtFile, "read", noted)
    with pytest.raises(UnreadableFile, match="cannot be read"):
        load_features(path)
    assert 0 < longest <= 2**14


def test_a_member_that_is_shorter_than_it_says_is_refused(write):
    path = write()
    members = records_of(path)
    whole = members["image_features.npy"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data[:-8] if data is whole else data)  # with the checksum of what is there
        archive.getinfo("image_features.npy").file_size = len(whole)
    with pytest.raises(UnreadableFile, match=r"image_features\.npy: it is shorter than its header says"):
        load_features(path)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The bytes of a file of each format."""
    folder = tmp_path_factory.mktemp("sound")
    return {
        ending: save_features(folder / f"a{ending}", **OPTIONAL).read_bytes() for ending in (".npz", ".safetensors")
    }


@given(data=st.data())
def test_damaged_bytes_are_refused_in_one_line_or_read(data, sound, tmp_path_factory):
    for ending, content in sound.items():
        path, damaged = tmp_path_factory.getbasetemp() / f"damaged{ending}", bytearray(content)
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(damaged[: data.draw(st.just(len(content)) | st.integers(0, len(content)))])
        unless_refused(lambda path=path: load_features(path))


def test_parts_are_joined_row_by_row(tmp_path):
    parts = [tmp_path / f"{number}.safetensors" for number in range(2)]
    rows = torch.arange(2600 * 3, dtype=torch.float32).reshape(2600, 3)  # more than are read at once
    for part, some in zip(parts, rows.split(1500), strict=True):
        save_file({"rows": some, "labels": torch.arange(len(some))}, part)
    whole = {"text": torch.ones(2, 2), "classes": torch.tensor([7])}
    join_tensors(tmp_path / "joined", parts, ["rows", "labels"], whole, {"about": "two"})
    found = load_file(tmp_path / "joined")
    assert torch.equal(found.pop("rows"), rows)
    assert torch.equal(found.pop("labels"), torch.cat([torch.arange(1500), torch.arange(1100)]))
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)


def test_a_text_that_the_disk_does_not_give_is_one_clear_line(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise OSError(errno.EIO, "input/output error")

    (tmp_path / "text").touch()
    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(MachineFailure, match=re.escape(f"{tmp_path}/text cannot be read: input/output error")):
        read_text(tmp_path / "text", "template")
