"""Small files that say or hold far too much: they are refused from their headers, before anything is unpacked."""

import io
import json
import subprocess
import sys
import zipfile
import zlib
from functools import partial

import numpy as np
import pytest
import torch
from numpy.lib import format as npy
from refusals import refusal
from safetensors.torch import save_file

from pta.data.features import load_features
from pta.methods import from_bytes, load_adapter

GIB = 2**30
_BLOCK = 2**24
_WIDTH = 512


def header(shape, dtype="<f4"):
    content = io.BytesIO()
    npy.write_array_header_1_0(content, {"descr": dtype, "fortran_order": False, "shape": shape})
    return content.getvalue()


def saved(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


USUAL = {
    "image_features": saved(np.eye(4, _WIDTH, dtype=np.float32)),
    "text_features": saved(np.eye(3, _WIDTH, dtype=np.float32)),
    "classnames": saved(np.array(["cat", "dog", "newt"])),
}


def write(path, **changes):
    """A feature file of these npy files."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (USUAL | changes).items():
            archive.writestr(f"{name}.npy", content)
    return path


def write_bomb(path, size):
    """A feature file whose features are so many bytes of zeros, packed a thousand to one."""
    head = header((size // (4 * _WIDTH), _WIDTH))
    packing = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packing.compress(head) + packing.flush(zlib.Z_FULL_FLUSH)  # after which nothing refers to what came before
    zeros = packing.compress(bytes(_BLOCK)) + packing.flush(zlib.Z_FULL_FLUSH)
    write(path, image_features=packed + zeros * (size // _BLOCK) + packing.flush())
    with zipfile.ZipFile(path, "a") as archive:
        entry = archive.getinfo("image_features.npy")
        entry.compress_type, entry.file_size = zipfile.ZIP_DEFLATED, len(head) + size
        archive.writestr("a", "")  # so that the list of entries is written again
    return path


@pytest.fixture
def plenty(monkeypatch):
    """A machine with enough memory for any of these files."""
    monkeypatch.setattr("pta.core.limits.available_memory", lambda: 2**40)


@pytest.fixture
def unpacked(monkeypatch):
    """The number of bytes of every read from an archive."""
    sizes, read = [], zipfile.ZipExtFile.read

    def counted(self, n=-1):
        content = read(self, n)
        sizes.append(len(content))
        return content

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counted)
    return sizes


def test_the_bomb_is_one(tmp_path):
    path = write_bomb(tmp_path / "bomb.npz", 3 * GIB)
    assert path.stat().st_size < 3.5e6
    with zipfile.ZipFile(path) as archive, archive.open("image_features.npy") as file:
        assert archive.getinfo("image_features.npy").file_size > 3 * GIB
        assert not any(file.read(2 * _BLOCK)[128:])


@pytest.mark.parametrize("size", [3 * GIB, GIB // 2])
def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused_unread(tmp_path, plenty, unpacked, size):
    said = refusal(load_features, write_bomb(tmp_path / "bomb.npz", size))
    assert "bomb.npz has" in said
    assert "more than 256 MiB and 32 times as many; save it without compression" in said
    assert sum(unpacked) == 0


_MEASURED = """
import resource, sys
from pta import PtaError
from pta.methods import load_adapter
from pta.data.features import load_features
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load_features(sys.argv[1])
except PtaError:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.extensive
def test_refusing_it_takes_no_memory(tmp_path):
    path = write_bomb(tmp_path / "bomb.npz", 3 * GIB)
    done = subprocess.run([sys.executable, "-c", _MEASURED, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64  # MiB


def test_an_honest_file_is_read_however_well_it_is_packed(tmp_path, monkeypatch):
    rng, path = np.random.default_rng(1), tmp_path / "honest.npz"
    features = rng.standard_normal((4000, 64)).astype(np.float16).astype(np.float32)
    names, labels = np.array(["cat", "dog", "x" * 100]), np.zeros(4000, np.int64)
    paths = np.array([f"{'folder/' * 30}{number:09d}.jpg" for number in range(4000)])
    np.savez_compressed(
        path, image_features=features, text_features=features[:3], classnames=names, labels=labels, paths=paths
    )
    monkeypatch.setattr("pta.core.limits._ALWAYS_UNPACKED", 0)
    assert len(load_features(path).samples) == 4000


def test_a_file_packed_in_another_way_is_refused(tmp_path, unpacked):
    with zipfile.ZipFile(tmp_path / "odd.npz", "w", zipfile.ZIP_LZMA) as archive:
        for name, content in USUAL.items():
            archive.writestr(f"{name}.npy", content)
    assert "in a way that numpy does not use" in refusal(load_features, tmp_path / "odd.npz")
    assert sum(unpacked) == 0


@pytest.mark.parametrize("name", ["classnames", "paths"])
@pytest.mark.parametrize("shape", [(10**9, 0), (10**9, 0, 5)])
def test_a_billion_rows_without_a_text_are_refused(tmp_path, name, shape):
    assert "texts" in refusal(load_features, write(tmp_path / "rows.npz", **{name: header(shape, "<U1")}))


@pytest.mark.parametrize("name", ["image_features", "text_features"])
@pytest.mark.parametrize("shape", [(10**9, _WIDTH), (10**10, 0), (2**62, 2**62)])
def test_an_array_that_is_smaller_than_its_header_says_is_refused(tmp_path, unpacked, name, shape):
    refusal(load_features, write(tmp_path / "short.npz", **{name: header(shape)}))
    assert sum(unpacked) < 2**16


def test_a_safetensors_file_of_very_many_empty_tensors_is_refused_unread(tmp_path):
    save_file({f"{number}": torch.empty(0) for number in range(20_000)}, path := tmp_path / "f.safetensors")
    for read in (load_features, load_adapter, lambda path: from_bytes(path.read_bytes())):
        assert "has 20,000 tensors; a file has at most 16,384" in refusal(read, path)


@pytest.mark.parametrize("end", [3 * GIB, 2**60, 2**64])
def test_a_safetensors_file_that_is_shorter_than_its_header_says_is_refused(tmp_path, end):
    rows = end // (4 * _WIDTH)
    text = json.dumps({"image_features": {"dtype": "F32", "shape": [rows, _WIDTH], "data_offsets": [0, end]}}).encode()
    (tmp_path / "short.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(1000))
    assert "truncated or damaged?" in refusal(load_features, tmp_path / "short.safetensors")


def test_an_h5_file_with_clouds_that_were_never_written_is_refused(tmp_path, plenty):
    h5py = pytest.importorskip("h5py")
    from pta.door.points.h5 import read_h5

    with h5py.File(tmp_path / "empty.h5", "w") as file:
        file.create_dataset("data", (10**5, 2048, 3), np.float32, chunks=(64, 2048, 3), compression="gzip")
        file.create_dataset("label", (10**5,), np.int64, chunks=True)
    assert "unpacks to 2,457,600,000" in refusal(read_h5, tmp_path / "empty.h5")


def about_blocks(folder, blocks, **others):
    about = {"kind": "feature blocks", "version": 1, "finished": True, "run": "x", "blocks": blocks}
    (folder / "about.json").write_text(json.dumps(about | others))
    return folder


def test_a_block_that_is_listed_again_and_again_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "000000000000-000000000004.safetensors").write_bytes(bytes(10**6))
    monkeypatch.setattr("pta.core.limits.available_memory", lambda: 10**9)
    said = refusal(load_features, about_blocks(tmp_path, [[0, 4]] * 1000))
    assert f"{tmp_path} unpacks to 0.931 GiB" in said


@pytest.mark.parametrize("blocks", [5, [1], [["a", "b"]], [], None, [[1.5, 4]], [[0, 4, 5]]])
def test_a_damaged_list_of_blocks_is_one_line(tmp_path, blocks):
    assert "folder of feature blocks" in refusal(partial(load_features, about_blocks(tmp_path, blocks)))
