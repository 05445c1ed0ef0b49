"""Code is kept only in folders that nobody but the user can write to."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from pta.data.prompts import write_anchors
from pta.door import private_cache as module
from pta.door.private_cache import default_cache, private_cache
from pta.run.gpu import encoder_program


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The user's cache, in a folder that counts as safe from others: that of temporary files is not."""
    check = module._made_safe
    monkeypatch.setattr(module, "_made_safe", lambda folder: tmp_path.is_relative_to(folder) or check(folder))
    monkeypatch.setenv("PTA_CACHE", str(tmp_path / "cache" / "pta"))
    for name in module.CODE_FOLDERS:  # so that all are restored
        monkeypatch.setenv(name, "")
    return tmp_path / "cache" / "pta"


def test_the_folder_and_the_parents_that_it_needs_are_made_for_the_user_alone(kept):
    folder = private_cache("kernels")
    assert folder == kept / "kernels" == private_cache("kernels")
    for one in (folder, kept, kept.parent):
        assert one.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("rights", [0o770, 0o702, 0o1777])
@pytest.mark.parametrize("level", ["kernels", ".", ".."])
def test_a_folder_that_others_can_write_to_or_replace_is_not_used(kept, level, rights):
    assert private_cache("kernels") is not None
    (kept / level).chmod(rights)
    assert private_cache("kernels") is None


@pytest.mark.parametrize("rights", [0o750, 0o701])
def test_a_folder_that_others_can_enter_is_not_used_for_what_is_made_in_it_may_let_a_group_write(kept, rights):
    assert private_cache("kernels") is not None
    (kept / "kernels").chmod(rights)
    assert private_cache("kernels") is None


def test_a_folder_that_another_process_makes_at_the_same_time_is_used(kept, monkeypatch):
    exists = module.Path.exists

    def made_meanwhile(path):
        is_there = exists(path)
        if not is_there:
            path.mkdir(mode=0o700)
        return is_there

    monkeypatch.setattr(module.Path, "exists", made_meanwhile)
    assert private_cache("kernels") == kept / "kernels"


def test_a_cache_that_texts_have_made_first_can_keep_code_whatever_the_umask(kept):
    before = os.umask(0o002)
    try:
        kept.parent.mkdir(mode=0o700)
        write_anchors(kept, "a key", torch.eye(2))
    finally:
        os.umask(before)
    assert private_cache("kernels") is not None


@pytest.mark.parametrize("level", ["kernels", ".", ".."])
def test_a_folder_of_another_user_is_not_used(kept, level, monkeypatch):
    assert private_cache("kernels") is not None
    own, foreign = module.Path.lstat, (kept / level).resolve()

    def lstat(path):
        status = own(path)
        return os.stat_result((*status[:4], 12345, *status[5:10])) if path == foreign else status

    monkeypatch.setattr(module.Path, "lstat", lstat)
    assert private_cache("kernels") is None


def test_a_link_leads_to_a_folder_that_is_checked_as_any_other(kept, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    kept.parent.mkdir()
    kept.symlink_to(shared)
    assert private_cache("kernels") == shared / "kernels"
    shared.chmod(0o777)
    assert private_cache("kernels") is None


def test_the_folder_of_temporary_files_is_not_used(tmp_path, monkeypatch):
    tmp_path.chmod(0o777)
    monkeypatch.setenv("PTA_CACHE", str(tmp_path))
    assert private_cache("kernels") is None
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_used_where_a_folder_cannot_be_made(kept):
    kept.parent.mkdir()
    kept.write_text("a file")
    assert private_cache("kernels") is None


@pytest.mark.parametrize("is_private", [True, False])
def test_torch_and_triton_keep_code_there_unless_they_are_told_where(kept, monkeypatch, is_private):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/chosen")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    if not is_private:
        kept.mkdir(parents=True)
        kept.chmod(0o777)
    removed = []
    monkeypatch.setattr(module.atexit, "register", lambda *call, **how: removed.append(call[1]))
    module.keep_code_private.__wrapped__()
    folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).parent
    assert os.environ["TRITON_CACHE_DIR"] == "/chosen"
    assert removed == ([] if is_private else [folder])
    assert (folder == kept / "torch") == is_private
    assert folder.stat().st_mode & 0o777 == 0o700
    if not is_private:
        shutil.rmtree(folder)


@pytest.mark.parametrize(("rights", "is_used"), [(0o700, True), (0o1777, True), (0o777, False), (0o2775, False)])
def test_code_of_one_process_lies_where_nobody_else_can_replace_its_folder(tmp_path, monkeypatch, rights, is_used):
    tmp_path.chmod(rights)
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "private_cache", lambda name: None)
    for name in module.CODE_FOLDERS:
        monkeypatch.setenv(name, "")
    made = []
    monkeypatch.setattr(module.atexit, "register", lambda *call, **how: made.append(call[1]))
    module.keep_code_private.__wrapped__()
    assert Path(os.environ["TRITON_CACHE_DIR"]).parent == made[0]
    assert (made[0].parent == tmp_path) == is_used
    shutil.rmtree(made[0])


def test_torch_is_told_to_compile_no_headers_if_it_has_any(monkeypatch):
    told = []
    monkeypatch.setattr(torch, "compile", lambda function, dynamic, options: told.append(options))
    monkeypatch.setattr(encoder_program, "keep_code_private", lambda: None)
    for known in (["cpp_cache_precompile_headers", "max_autotune"], ["max_autotune"]):
        monkeypatch.setattr("torch._inductor.list_options", lambda known=known: known)
        encoder_program.compiled_by_torch(torch.relu)
    assert told == [{"cpp_cache_precompile_headers": False}, {}]


@pytest.mark.extensive
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch needs a compiler of C++")
@pytest.mark.parametrize("imported", ["", ", torch._inductor.codecache"])
def test_nothing_is_compiled_in_the_folder_that_all_users_share_even_if_torchs_compiler_was_imported_before(
    tmp_path, imported
):
    work = f"""
        import threading, torch{imported}
        from pta.run.gpu.encoder_program import compiled_by_torch
        numbers = torch.ones(64, 64)
        double = compiled_by_torch(lambda x: (2 * x).relu())
        thread = threading.Thread(target=lambda: print(double(numbers).sum().item()))
        thread.start(), thread.join()
    """
    places = {"TMPDIR": str(tmp_path), "PTA_CACHE": str(tmp_path / "cache")}
    environment = {name: value for name, value in os.environ.items() if "INDUCTOR" not in name} | places
    command = [sys.executable, "-c", dedent(work)]
    assert subprocess.run(command, env=environment, capture_output=True, check=True).stdout == b"8192.0\n"
    assert [one for one in tmp_path.rglob("*") if "precompiled_headers" in one.name] == []
    assert imported or [one for one in tmp_path.iterdir() if one.name != "cache"] == []


def test_the_usual_place_of_the_cache_follows_the_environment(tmp_path, monkeypatch):
    for name in ("PTA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "pta"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache() == tmp_path / "xdg" / "pta"
    monkeypatch.setenv("PTA_CACHE", str(tmp_path / "own"))
    assert default_cache() == tmp_path / "own"


def test_a_user_without_a_home_keeps_nothing(monkeypatch):
    for name in ("PTA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", Path("~nobody of this name").expanduser)
    write_anchors(default_cache(), "a key", torch.eye(2))
    assert private_cache("kernels") is None
    assert not default_cache().exists()


def test_an_empty_name_is_none(kept, monkeypatch):
    """Torch would take it for the working folder."""
    names = dict(zip(module.CODE_FOLDERS, ("torchinductor", "triton", "pytorch"), strict=True))
    module.keep_code_private.__wrapped__()
    for name, folder in names.items():
        assert os.environ[name] == str(kept / "torch" / folder)
        assert Path(os.environ[name]).stat().st_mode & 0o777 == 0o700


def test_torchs_own_choice_is_not_taken_for_the_users(kept, monkeypatch):
    """Importing transformers makes torch write it into the environment."""
    monkeypatch.setenv("TRITON_CACHE_DIR", "/chosen")
    for given in (default_cache_dir(), "/chosen/for/torch"):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", given)
        module.keep_code_private.__wrapped__()
        is_users = given.startswith("/chosen")
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == (given if is_users else str(kept / "torch/torchinductor"))
