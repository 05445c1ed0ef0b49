"""Weights in archives of torch: exactly what torch itself reads, or one line about what is wrong."""

import argparse
import copy
import os
import pickle
import random
import shutil
import zipfile
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
import torch
from hostile_archives import records_of, text, with_pickle, write_records
from safetensors.torch import save_file
from torch import nn

from pta.door.weights import inert_pickle
from pta.door.weights.inert_pickle import Inert, read_pickle
from pta.door.weights.weights import read_weights
from pta.errors import PtaError, UnreadableFile

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchScript


DTYPES = ("float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8")


def views_and_dtypes():
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(8, 6, generator=generator)
    return {
        **{f"as_{name}": (shared * 20).abs().to(getattr(torch, name)) for name in DTYPES},
        "as_bool": shared > 0,
        "shared": shared,
        "rows": shared[2:5],
        "columns": shared.t(),
        "every_other": shared[::2, ::3],
        "permuted": torch.randn(2, 3, 4, generator=generator).permute(2, 0, 1),
        "number": torch.tensor(77),
        "none": torch.empty(0, 3),
    }


class Module(nn.Module):
    """A module as OpenAI's are: half weights, buffers of integers, modules within modules, one of them twice."""

    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.Linear(4, 2)).half()
        self.twice = nn.ModuleList([self.visual[2], nn.LayerNorm(3)])
        self.logit_scale = nn.Parameter(torch.tensor(4.6))
        self.text_projection = nn.Parameter(torch.randn(4, 3).t())
        for name, value in views_and_dtypes().items():
            self.register_buffer(name, value)
        self.names, self.number_of_heads, self.eps = ["a", "b"], 3, 1e-5

    def forward(self, x: torch.Tensor, flag: bool = True) -> torch.Tensor:
        return x


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    path = tmp_path_factory.mktemp("scripted") / "model.pt"
    torch.jit.script(Module()).save(str(path))
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    # torch names the records after the file, or "archive" if the path is not ASCII
    path = tmp_path_factory.mktemp("saved") / "archive.pt"
    torch.save({"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.zeros(2)}, path)
    return path


@pytest.fixture(scope="module")
def safetensors(tmp_path_factory):
    path = tmp_path_factory.mktemp("safetensors") / "weights.safetensors"
    save_file({"weight": torch.ones(3000)}, path)
    return path


require_equal = partial(torch.testing.assert_close, rtol=0, atol=0, check_stride=True)


# -- what is read ----------------------------------------------------------------------------------------------------


def test_a_torchscript_module_has_the_state_dict_that_torch_reads(scripted):
    theirs = torch.jit.load(scripted).state_dict()
    weights = read_weights(scripted)
    assert weights.torchscript
    assert len(theirs) > 30
    require_equal(weights.tensors, theirs)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_state_dict_is_what_torch_reads_whatever_lies_beside_it(tmp_path, protocol):
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    parameters = {f"parameter.{name}": parameter for name, parameter in module.named_parameters()}
    run = {
        "epoch": 3,
        "best": np.float64(0.5),
        "history": np.arange(3),
        "args": argparse.Namespace(lr=1e-3, betas=[0.9, 0.99], name=None),
        "tags": {"a", frozenset({2})},
        "state_dict": OrderedDict(module.state_dict(), **parameters, **views_and_dtypes()),
        "optimizer": {"state": {0: {"exp_avg": torch.randn(2, 3)}}, "param_groups": [{"lr": 1e-3, "params": [0]}]},
        "raw": [b"bytes", bytearray(b"bytes"), 2**100, -1.5, (True, False)],
    }
    torch.save(run, tmp_path / "run.pt", pickle_protocol=protocol)
    theirs = torch.load(tmp_path / "run.pt", weights_only=False)["state_dict"]
    weights = read_weights(tmp_path / "run.pt")
    assert not weights.torchscript
    require_equal(weights.tensors, theirs)


def test_tensors_that_share_memory_still_share_it_and_storages_are_aligned(scripted):
    tensors = read_weights(scripted).tensors
    whole, rows = tensors["shared"], tensors["rows"]
    assert whole.untyped_storage().data_ptr() == rows.untyped_storage().data_ptr()
    assert rows.data_ptr() - whole.data_ptr() == 2 * 6 * 4
    assert all(tensor.untyped_storage().data_ptr() % 64 == 0 for tensor in tensors.values() if tensor.numel())


@pytest.mark.parametrize("kind", ["scripted", "saved", "safetensors"])
def test_a_file_can_be_overwritten_or_cut_after_it_was_read(tmp_path, request, kind):
    path = tmp_path / request.getfixturevalue(kind).name
    shutil.copy(request.getfixturevalue(kind), path)
    tensors = read_weights(path).tensors
    before = copy.deepcopy(tensors)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    require_equal(tensors, before)
    os.truncate(path, 0)
    require_equal(tensors, before)


def test_bytes_that_are_neither_true_nor_false_are_true(tmp_path):
    torch.save({"mask": torch.tensor([True, False])}, tmp_path / "mask.pt")
    records = records_of(tmp_path / "mask.pt")
    records["mask/data/0"] = b"\x02\x00"
    mask = read_weights(write_records(tmp_path / "other.pt", records)).tensors["mask"]
    assert mask.view(torch.uint8).tolist() == [1, 0]


def test_archives_for_more_than_four_gigabytes_are_read(tmp_path, saved):
    with zipfile.ZipFile(tmp_path / "large.pt", "w") as archive:
        for name, content in records_of(saved).items():
            with archive.open(name, "w", force_zip64=True) as record:
                record.write(content)
    require_equal(read_weights(tmp_path / "large.pt").tensors, read_weights(saved).tensors)


# -- what is refused: zip archives -----------------------------------------------------------------------------------


def refusal(path):
    with pytest.raises(UnreadableFile) as refused:
        read_weights(path)
    assert str(path) in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("record", "offset", "value"),
    [("data.pkl", 8, 1), ("data.pkl", 10, 8), ("data/0", 10, 8), ("data.pkl", 10, 99), ("data.pkl", 20, 1)],
    ids=["encrypted", "a compressed pickle", "a compressed tensor", "an unknown method", "another length"],
)
def test_an_entry_that_torch_would_not_write_is_refused_before_it_is_unpacked(tmp_path, saved, record, offset, value):
    content = bytearray(saved.read_bytes())
    start = content.rindex(b"PK\1\2", 0, content.rindex(f"archive/{record}".encode()))  # in the list at the end
    content[start + offset : start + offset + 2] = value.to_bytes(2, "little")
    (tmp_path / "odd.pt").write_bytes(content)
    assert "is compressed or encrypted" in refusal(tmp_path / "odd.pt")


ODD_RECORDS = [
    ("one data.pkl", lambda records: records | {"other/data.pkl": b"."}),
    ("one data.pkl", lambda records: {"data.pkl": records["archive/data.pkl"], "/etc/passwd": b""}),
    ("'data/1' is missing", lambda records: {name: records[name] for name in records if name != "archive/data/1"}),
    ("larger than its record", lambda records: records | {"archive/data/0": bytes(20)}),
    ("byte order", lambda records: records | {"archive/byteorder": b"big"}),
    ("list of entries is longer", lambda records: records | {f"archive/{n}": b"" for n in range(400)}),
]


@pytest.mark.parametrize(("said", "change"), ODD_RECORDS)
def test_records_that_do_not_fit_their_tensors_or_each_other_are_refused(tmp_path, saved, monkeypatch, said, change):
    monkeypatch.setattr("pta.door.weights.weights._LONGEST_LIST", 10_000)
    assert said in refusal(write_records(tmp_path / "odd.pt", change(records_of(saved))))


def test_a_record_that_is_there_twice_is_refused(tmp_path, saved):
    path = tmp_path / "twice.pt"
    shutil.copy(saved, path)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/data/0", bytes(24))
    assert "no name twice" in refusal(path)


def test_a_damaged_record_is_noticed(tmp_path, saved):
    content = bytearray(saved.read_bytes())
    content[content.index(torch.arange(6.0).numpy().tobytes())] ^= 1
    (tmp_path / "damaged.pt").write_bytes(content)
    assert "truncated or damaged" in refusal(tmp_path / "damaged.pt")


def test_records_within_records_are_refused(tmp_path, saved):
    numbers = 100_000
    inner = write_records(tmp_path / "inner.pt", {"archive/data/1": bytes(4 * numbers)}).read_bytes()
    place = inner[: inner.index(b"PK\1\2")]
    both = b"".join(text(key) + tensor(record=key, numbers=numbers, size=(numbers,), stride=(1,)) for key in "01")
    pickled = b"\x80\2}(" + both + b"u."
    with zipfile.ZipFile(tmp_path / "both.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/data/0", place)
        with zipfile.ZipFile(tmp_path / "inner.pt") as alone:
            (within,) = alone.infolist()
        within.header_offset += archive.getinfo("archive/data/0").header_offset + 30 + len("archive/data/0")
        archive.filelist.append(within)
    with zipfile.ZipFile(tmp_path / "both.pt") as archive:
        assert archive.read("archive/data/1") == bytes(4 * numbers), "the archive is damaged, so this shows nothing"
    assert "together larger than the file" in refusal(tmp_path / "both.pt")


def test_a_file_larger_than_the_memory_is_refused_before_it_is_read(monkeypatch, saved, safetensors):
    monkeypatch.setattr("pta.core.limits.available_memory", lambda: 1000)
    for path in (saved, safetensors):
        assert "of memory" in refusal(path)


# -- what is refused: pickles ----------------------------------------------------------------------------------------


def number(value):
    return pickle.dumps(value, protocol=2)[2:-1]


def tensor(record="0", kind="torch\nFloatStorage", numbers=6, offset=0, size=(2, 3), stride=(3, 1)):
    """The pickle of a tensor."""
    storage = b"(" + text("storage") + f"c{kind}\n".encode() + number(record) + text("cpu") + number(numbers) + b"tQ"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + number(size) + number(stride) + b"tR"


def with_tensor(saved, path, pickled):
    return with_pickle(saved, path, lambda _: b"\x80\2}(" + text("weight") + pickled + b"u.")


def test_tensors_in_pickles_written_by_hand_are_read(tmp_path, saved):
    own = read_weights(with_tensor(saved, tmp_path / "own.pt", tensor(offset=1, size=(2,), stride=(2,)))).tensors
    assert own["weight"].tolist() == [1, 3]


IMPOSSIBLE = {
    "a view beyond its record": tensor(offset=1),
    "a stride beyond it": tensor(stride=(4, 1)),
    "a negative stride": tensor(offset=5, stride=(-3, 1)),
    "a negative offset": tensor(offset=-1),
    "a negative size": tensor(size=(-2, 3)),
    "a view that repeats numbers": tensor(stride=(0, 1)),
    "a view that overlaps itself": tensor(size=(2, 2), stride=(1, 1)),
    "a gigantic view": tensor(size=(2**40, 2**40), stride=(0, 0)),
    "a gigantic storage": tensor(numbers=2**50, size=(2**45, 32), stride=(32, 1)),
    "an integer of a thousand bytes": tensor(size=(2**8000,), stride=(1,)),
    "a size of true": tensor(size=(True, 3)),
    "a size of text": tensor(size=("2", 3)),
    "a size that is a number": tensor(size=6),
    "more strides than sizes": tensor(stride=(3, 1, 1)),
    "a thousand dimensions": tensor(size=(1,) * 1000, stride=(1,) * 1000),
    "a record's name that is a number": tensor(record=0),
    "an unknown type": tensor(kind="torch\nComplexFloatStorage"),
    "a type of another module": tensor(kind="os\nFloatStorage"),
    "no arguments": b"ctorch._utils\n_rebuild_tensor_v2\n)R",
    "no storage": b"ctorch._utils\n_rebuild_tensor_v2\n(NK\0)ttR",
    "a persistent id of text": b"ctorch._utils\n_rebuild_tensor_v2\n(" + text("0") + b"QK\0))tR",
    "a storage that is no tuple": b"ctorch._utils\n_rebuild_tensor_v2\n(}QK\0))tR",
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_a_tensor_that_cannot_be_is_refused(tmp_path, saved, what):
    message = refusal(with_tensor(saved, tmp_path / "odd.pt", IMPOSSIBLE[what]))
    assert "a tensor in it" in message or "cannot be read as a checkpoint" in message


def test_one_storage_under_many_names_does_not_multiply(tmp_path):
    large = 100_000
    torch.save({"weight": torch.zeros(large)}, tmp_path / "honest.pt")
    one = tensor(numbers=large, size=(large,), stride=(1,))

    def with_names(*names):
        pickled = b"\x80\2}(" + b"".join(text(name) + one for name in names) + b"u."
        return with_pickle(tmp_path / "honest.pt", tmp_path / "many.pt", lambda _: pickled)

    assert len(read_weights(with_names("a", "b")).tensors) == 2
    assert "together larger than the file" in refusal(with_names("a", "b", "c"))


def test_flags_that_share_a_storage_are_copied_alone(tmp_path):
    flags = torch.arange(1_000) % 3 == 0
    torch.save({"all": flags, **{str(n): flags[n : n + 2] for n in range(10)}}, tmp_path / "flags.pt")
    read = read_weights(tmp_path / "flags.pt").tensors
    for name, tensor in torch.load(tmp_path / "flags.pt", weights_only=True).items():
        assert torch.equal(read[name], tensor)
        assert read[name].untyped_storage().nbytes() == tensor.numel()


MODULE = b"c__torch__\nModule\n)\x81"
DEEP = 50_000


def modules_in_modules():
    """A hundred modules, each twice within the next: 2^100 paths."""
    for _ in range(100):
        yield MODULE + b"}(" + text("a") + b"h\0" + text("b") + b"h\0ubq\0"


BOMBS = {
    "tuples in tuples": b")" + b"\x85" * DEEP,
    "dicts in dicts": (b"}" + text("a")) * DEEP + b"}" + b"s" * DEEP,
    "a tuple doubled again and again": b")" + b"2\x86" * DEEP,
    "such a tuple as a key": b"})" + b"2\x86" * 300 + b"K\1s",
    "modules in modules": MODULE + b"}bq\0" + b"".join(modules_in_modules()),
    "a module in itself": MODULE + b"q\0}" + text("a") + b"h\0sb",
    "a module with a long name in itself": MODULE + b"q\0}" + text("a" * 10**6) + b"h\0sb",
    "modules that share a long name": b"".join(
        [MODULE, b"}(", text("a" * 10**6), tensor(), b"ubq\1", MODULE, b"}("]
        + [text(str(n)) + b"h\1" for n in range(10_000)]
        + [b"ub"]
    ),
    "sizes without end that many tensors share": b"".join(
        [b"(" + b"K\1" * DEEP + b"tq\2}("]
        + [text(str(n)) + tensor(size=None, stride=None).replace(b"NN", b"h\2h\2") for n in range(5_000)]
        + [b"u"]
    ),
    "a tensor with a long name": b"}" + text("a" * 10**6) + tensor() + b"s",
    "a long name used often": b"X" + (10**6).to_bytes(4, "little") + b"a" * 10**6 + b"q\0" + b"h\0h\0\x93" * 10_000,
    "an integer of a million bytes": b"\x8b" + (10**6).to_bytes(4, "little") + b"\x7f" * 10**6,
    "an integer of a million digits": b"L" + b"9" * 10**6 + b"L\n",
    "a text longer than the file": b"\x8d" + (2**60).to_bytes(8, "little") + b"abc",
    "bytes longer than the file": b"\x96" + (2**40).to_bytes(8, "little") + b"abc",
    "a frame longer than the file": b"\x95" + (2**60).to_bytes(8, "little"),
    "a place far away in the memo": b"}r\xff\xff\xff\xff",
    "a place that is not in the memo": b"h\7",
    "a name without end": b"c" + b"a" * 10**6,
    "marks": b"(" * DEEP,
    "nothing": b"",
    "less than nothing": b"000",
    "a state for nothing": b"b",
    "an unknown opcode": b"\xff",
    "half a surrogate pair": b"V\\ud800\n",
    "an item without a dict": b"NK\1K\2s",
    "a number": b"K\1",
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_bomb_does_not_go_off(tmp_path, saved, what):
    refusal(with_pickle(saved, tmp_path / "bomb.pt", lambda _: b"\x80\4" + BOMBS[what] + b"."))


def test_a_pickle_of_too_many_steps_is_refused(tmp_path, saved, monkeypatch):
    monkeypatch.setattr(inert_pickle, "MOST_STEPS", 100)
    path = with_pickle(saved, tmp_path / "long.pt", lambda _: b"\x80\2" + b"N0" * 100 + b"}.")
    assert "more than 100 steps" in refusal(path)


@pytest.mark.parametrize("kind", ["scripted", "saved"])
def test_any_pickle_is_read_or_refused(tmp_path, request, kind):
    opcodes = [opcode.code.encode("latin-1") for opcode in inert_pickle.opcodes]
    records, dice = records_of(request.getfixturevalue(kind)), random.Random(0)
    name = next(name for name in records if name.endswith("/data.pkl"))
    read = refused = 0
    for _ in range(150):
        content = bytearray(records[name])
        for _ in range(dice.choice([1, 2, 5])):
            place = dice.randrange(len(content))
            length, other = dice.randrange(20), dice.randrange(len(content))
            change = dice.choice([dice.choice(opcodes), dice.randbytes(1), content[other : other + length]])
            content[place : place + dice.randrange(3)] = change
        path = write_records(tmp_path / "mutant.pt", records | {name: bytes(content)})
        try:
            for weight in read_weights(path).tensors.values():
                weight.sum()
            read += 1
        except PtaError:
            refused += 1
    assert min(read, refused) > 0


# -- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_are_themselves_and_everything_else_is_inert(protocol):
    plain = {"text": "ünï", "number": -(2**70), "nested": {"pair": (1, ("a",)), "empty": {}, "no": ()}}
    others = {"float": 1.5, "list": [1, b"x"], "none": None}
    found = read_pickle(pickle.dumps({**plain, **others, "namespace": argparse.Namespace(a=1)}, protocol))
    namespace = found.pop("namespace")
    assert found == plain | dict.fromkeys(others)
    assert isinstance(namespace, Inert)
    assert namespace.state == {"a": 1}


def test_ordered_dicts_are_dicts_and_keys_that_are_no_text_are_left_out():
    assert read_pickle(pickle.dumps(OrderedDict(a=1, b=OrderedDict()), 2)) == {"a": 1, "b": {}}
    assert read_pickle(pickle.dumps({1: 2, "a": 3, (1, 2): 4}, 2)) == {"a": 3}
