"""Errors are of two families, and the command exits with 2 for the user's mistakes and 1 for the machine's failures."""

import errno
import importlib
import pkgutil
import resource
import socket
import sqlite3
from contextlib import closing, suppress

import pytest

import pta as package
from pta.errors import MachineFailure, PtaError, UnreadableFile, UnreadableSample, UserMistake, explaining, family
from pta.serve.requests import Refused

FAMILIES = (UserMistake, MachineFailure)


def below(kind):
    return {one for child in kind.__subclasses__() for one in (child, *below(child))}


def test_every_error_of_the_package_is_of_exactly_one_family():
    for module in pkgutil.walk_packages(package.__path__, "pta.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    found = {one for one in below(PtaError) if one.__module__.startswith("pta.")}
    assert found > {*FAMILIES, UnreadableFile, Refused}
    for one in found:
        assert sum(issubclass(one, kind) for kind in FAMILIES) == 1, one
    assert {kind.exit_code for kind in FAMILIES} == {1, 2}


@pytest.mark.parametrize(
    "error",
    [
        *(kind("it is\nso") for kind in sorted(below(PtaError), key=str) if kind.__module__ == "pta.errors"),
        Refused("it is so"),
        Refused("it is so", 503),
    ],
    ids=repr,
)
def test_the_command_prints_one_line_and_exits_with_the_code_of_the_family(pta, monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr("pta.cli.datasets.catalogue", fail)
    done = pta("datasets")
    of_the_machine = isinstance(error, MachineFailure) or getattr(error, "status", 0) >= 500
    assert (done.returncode, done.stdout) == (1 if of_the_machine else 2, "")
    assert done.stderr == "pta: it is so\n"


@pytest.mark.parametrize(
    ("out", "complaint"),
    [
        ("none/out.json", "the folder none does not exist"),
        ("folder", "it is not a file"),
        ("x" * 300, "file name too long"),
    ],
)
def test_a_place_that_cannot_be_written_to_is_the_user_s_mistake(pta, pets, tmp_path, out, complaint):
    (tmp_path / "folder").mkdir()
    done = pta("eval", "--features", pets, "--method", "pta", "--json", out)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert complaint in done.stderr


def test_a_full_disk_is_the_machine_s_failure(commands, pets, tmp_path):
    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (99, {resource.RLIM_INFINITY}))"
    call = ("eval", "--features", pets, "--method", "pta", "--json", "out.json")
    commands.start(*call, folder=tmp_path, first=full, to_the_end=True)
    assert commands.wait() == 1
    assert commands.stderr.read().splitlines()[-1] == "pta: cannot write out.json: file too large"
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_service_that_does_not_answer_is_the_machine_s_failure(pta, tmp_path):
    (tmp_path / "token").write_text("a" * 32)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        server = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    done = pta("stream", "list", "--token-file", "token", "--server", server)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "is pta serve running there? PTA_SERVER or" in done.stderr


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "ENOMEM", "EMFILE", "ECONNRESET"])
def test_what_the_system_cannot_do_is_the_machine_s_failure(name):
    with pytest.raises(MachineFailure, match="cannot write a: it is so"), explaining("cannot write a"):
        raise OSError(getattr(errno, name), "It is so")


@pytest.mark.parametrize("name", ["ENOENT", "EACCES", "EISDIR", "ENOTDIR", "EEXIST", "ENAMETOOLONG", "ELOOP"])
def test_a_wrong_name_is_the_user_s_mistake(name):
    with pytest.raises(UnreadableFile, match="cannot write a: it is so"), explaining("cannot write a"):
        raise OSError(getattr(errno, name), "It is so")
    assert family(OSError(getattr(errno, name), ""), UnreadableSample) is UnreadableSample


def test_a_full_database_is_the_machine_s_failure_and_a_damaged_one_the_user_s_mistake(tmp_path):
    (tmp_path / "damaged").write_bytes(b"no database" * 100)
    with closing(sqlite3.connect(tmp_path / "damaged")) as connection, pytest.raises(sqlite3.Error) as damaged:
        connection.execute("SELECT * FROM a")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript("CREATE TABLE a (b); PRAGMA max_page_count = 2")
        with pytest.raises(sqlite3.Error) as full:
            connection.execute("INSERT INTO a VALUES (zeroblob(100000))")
    assert (family(full.value), family(damaged.value)) == (MachineFailure, UnreadableFile)
