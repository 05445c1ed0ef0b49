"""Model files that want to run code: it never runs, and the weights are those of the honest file or are refused."""

import argparse
import copyreg
import sys

import pytest
import torch
from hostile_archives import CALLS, EXTENSION, before, harm_of, records_of, text, with_code, with_pickle, write_records
from openai_checkpoints import random_state, write_openai_archive

from pta.door.weights.weights import read_weights
from pta.errors import PtaError
from pta.models.clip.checkpoint import load_checkpoint


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("honest") / "model.pt"
    write_openai_archive(path, random_state("ViT"))
    return path


@pytest.fixture(scope="module")
def fingerprint(honest):
    return load_checkpoint(str(honest)).fingerprint


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "weights.pt"
    torch.save({"weight": torch.arange(6.0)}, path)
    return path


@pytest.fixture
def extension():
    copyreg.add_extension("os", "mkdir", EXTENSION)
    yield
    copyreg.remove_extension("os", "mkdir", EXTENSION)


# -- code in TorchScript archives ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_code_in_an_archive_is_not_run_and_its_weights_are_the_honest_ones(tmp_path, honest, fingerprint):
    written = tmp_path / "written"
    path = with_code(honest, tmp_path / "model.pt", written)
    assert load_checkpoint(str(path)).fingerprint == fingerprint
    assert not written.exists()
    torch.jit.load(path)
    assert written.read_bytes() == b"harm", "the attack does not work, so this shows nothing"


class RunsWhenLoaded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.zeros(2))

    @torch.jit.export
    def __getstate__(self):
        return self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        print("the code in the archive ran")
        self.weight, self.training = state[0], state[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_that_would_restore_itself_is_not_asked_to(tmp_path, capfd):
    path = tmp_path / "model.pt"
    torch.jit.script(torch.nn.ModuleDict({"deep": RunsWhenLoaded()})).save(str(path))
    capfd.readouterr()
    torch.jit.load(path)
    assert "ran" in capfd.readouterr().out, "nothing runs at loading, so this shows nothing"
    with pytest.raises(PtaError, match="holds no state dict"):
        load_checkpoint(str(path))
    assert capfd.readouterr().out == ""


def test_what_else_is_in_an_archive_is_not_even_read(tmp_path, honest, fingerprint):
    evil = b"\x80\4" + CALLS["GLOBAL and REDUCE"](str(tmp_path / "made")) + b"."
    records = records_of(honest)
    for name in records:
        if "/data/" not in name and not name.endswith(("/data.pkl", "/byteorder")):
            records[name] = evil
    records["model/model.json"] = records["model/more/data.pkl"] = evil
    path = write_records(tmp_path / "model.pt", records)
    assert load_checkpoint(str(path)).fingerprint == fingerprint
    assert not (tmp_path / "made").exists()


# -- pickles ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("extension")
@pytest.mark.parametrize("opcode", CALLS)
def test_a_call_in_a_pickle_is_not_made_and_the_tensors_beside_it_are_read(tmp_path, saved, opcode):
    evil = CALLS[opcode](str(tmp_path / "made"))
    path = with_pickle(saved, tmp_path / "evil.pt", lambda honest: before(honest, evil))
    assert read_weights(path).tensors["weight"].tolist() == [0, 1, 2, 3, 4, 5]
    assert not (tmp_path / "made").exists()
    harm_of(evil)
    assert (tmp_path / "made").exists(), "the attack does not work, so this shows nothing"


def test_a_class_is_not_changed_by_the_state_that_a_pickle_gives_it(tmp_path, saved):
    evil = b"cargparse\nNamespace\nN}" + text("harmed") + b"\x88s\x86b"
    path = with_pickle(saved, tmp_path / "evil.pt", lambda honest: before(honest, evil))
    assert list(read_weights(path).tensors) == ["weight"]
    assert not hasattr(argparse.Namespace, "harmed")
    harm_of(evil)
    assert argparse.Namespace.harmed, "the attack does not work, so this shows nothing"
    del argparse.Namespace.harmed


def test_a_call_in_place_of_a_tensor_is_left_out(tmp_path, saved):
    evil = CALLS["GLOBAL and REDUCE"](str(tmp_path / "made"))
    pickled = b"\x80\2}(" + text("weight") + evil + b"u."
    path = with_pickle(saved, tmp_path / "evil.pt", lambda honest: pickled)
    with pytest.raises(PtaError, match="holds no state dict"):
        read_weights(path)
    assert not (tmp_path / "made").exists()


def test_what_a_pickle_names_is_not_imported(tmp_path, saved, monkeypatch):
    (tmp_path / "named_in_a_pickle.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    evil = b"cnamed_in_a_pickle\n__name__\n"
    path = with_pickle(saved, tmp_path / "evil.pt", lambda honest: before(honest, evil))
    assert list(read_weights(path).tensors) == ["weight"]
    assert "named_in_a_pickle" not in sys.modules
    harm_of(evil)
    assert sys.modules.pop("named_in_a_pickle"), "it cannot be imported, so this shows nothing"
