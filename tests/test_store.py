"""The result store: real processes share it, none loses anything, and a kill costs nothing that was kept."""

import os
import random
import re
import signal
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from processes import PATIENCE, Forked, wait_until
from refusals import refusal

from pta.errors import InvalidParameter, UnreadableFile
from pta.measure.result_store import ResultStore, result_key

FORK = get_context("fork")  # quick; the store keeps nothing open that a fork could share


def write_many(folder, writer, count):
    store = ResultStore(folder)
    for number in range(count):
        store.put({"writer": writer, "number": number}, {"value": writer * 1000 + number})


def hold(folder, key, held):
    with ResultStore(folder).claim(key, wait=True) as mine:
        assert mine
        held.set()
        signal.pause()


def write_until_killed(folder, begun):
    store, number = ResultStore(folder), 0
    while True:
        store.put({"number": number}, {"value": number, "filling": "x" * 20_000})
        begun.set()
        number += 1


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "store")


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_what_is_put_comes_back_and_nothing_else_does(store, tmp_path):
    inputs = {"method": "pta", "seed": 1, "names": ("a", "b")}
    kept = store.put(inputs, {"accuracy": 0.1 + 0.2, "curve": (1, 2), "n": None})
    assert kept == {"accuracy": 0.1 + 0.2, "curve": [1, 2], "n": None}
    assert ResultStore(tmp_path / "store").get(result_key(inputs)) == kept
    assert store.get(result_key({**inputs, "seed": 2})) is None
    store.put(inputs, {"value": 2})  # the same inputs again replace the result
    assert (store.get(result_key(inputs)), len(store)) == ({"value": 2}, 1)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), np.float32(1), object(), b"1"], ids=["nan", "inf", "numpy", "object", "bytes"]
)
def test_what_json_does_not_have_is_refused_and_nothing_is_kept(store, value):
    for inputs, record in (({"w": value}, {}), ({}, {"w": value})):
        with pytest.raises(InvalidParameter, match="cannot be kept as JSON"):
            store.put(inputs, record)
    assert len(store) == 0


# -- two processes ----------------------------------------------------------------------------------------------------


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    writers = [Forked(write_many, tmp_path / "store", writer, 40) for writer in range(2)]  # which make it, too
    for writer in writers:
        writer.join(PATIENCE)
        assert writer.exitcode == 0
    store = ResultStore(tmp_path / "store")
    assert len(store) == 80
    for writer, number in product(range(2), range(40)):
        assert store.get(result_key({"writer": writer, "number": number})) == {"value": writer * 1000 + number}


def test_a_claim_is_held_against_others_until_a_kill_gives_it_to_whoever_waits(store, tmp_path):
    held, got = FORK.Event(), FORK.Event()
    holder = Forked(hold, tmp_path / "store", "abcdef", held)
    wait_until(held.is_set, holder)
    for key, free in (("abcdef", False), ("fedcba", True)):
        with store.claim(key, wait=False) as mine:
            assert mine is free
    waiting = Forked(hold, tmp_path / "store", "abcdef", got)
    assert not got.wait(0.3)
    holder.kill()
    wait_until(got.is_set, waiting)
    waiting.kill()


@pytest.mark.extensive
def test_a_claim_and_a_transaction_are_waited_for_longer_than_a_second(store, tmp_path):
    database = sqlite3.connect(tmp_path / "store/results.sqlite", isolation_level=None, check_same_thread=False)
    with closing(database) as transaction:
        transaction.execute("BEGIN EXCLUSIVE")
        commit = threading.Timer(1.5, lambda: transaction.execute("COMMIT"))
        commit.start()
        store.put({"seed": 1}, {"value": 1})
        commit.join()
    claim = store.claim("abcdef", wait=False)
    assert claim.__enter__()
    release = threading.Timer(1.5, lambda: claim.__exit__(None, None, None))
    release.start()
    with store.claim("abcdef", wait=True) as mine:
        assert mine
    release.join()


def test_an_error_inside_a_claim_frees_it_and_leaves_no_file(store, tmp_path):
    with pytest.raises(KeyError), store.claim("abcdef", wait=True):
        raise KeyError
    assert list((tmp_path / "store" / "claims").iterdir()) == []


def test_a_process_killed_while_it_writes_leaves_a_readable_store(tmp_path):
    rng = random.Random(1)
    for _ in range(8):
        begun = FORK.Event()
        writer = Forked(write_until_killed, tmp_path / "store", begun)
        wait_until(begun.is_set, writer)
        time.sleep(rng.uniform(0, 0.02))
        writer.kill()
        store = ResultStore(tmp_path / "store")
        values = [store.get(result_key({"number": number}))["value"] for number in range(len(store))]
        assert values == list(range(len(store)))  # what was put is there, whole, and nothing is there by half


# -- what cannot be used ----------------------------------------------------------------------------------------------


def other_program(path, table):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE {table}")


def damaged(path, damage):
    store = ResultStore(path.parent)
    for number in range(20):
        store.put({"number": number}, {"value": "x" * 1000})
    path.write_bytes(damage(path.read_bytes()))


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (damaged, lambda content: b"not a database at all, but long enough to be looked at" * 40),
        (damaged, lambda content: content[:5000] + b"\xff" * 9000),
        (damaged, lambda content: content.replace(b'{"value"', b'{"val"x1')),
        (other_program, "songs (title TEXT)"),
        (other_program, "results (id INTEGER, score REAL)"),
    ],
    ids=["text", "cut off", "record", "other table", "other columns"],
)
def test_a_damaged_database_or_that_of_another_program_is_one_clear_line_and_stays_as_it_is(tmp_path, make, given):
    path = tmp_path / "results.sqlite"
    make(path, given)
    before = path.read_bytes()
    complaint = r"^the results in .*results\.sqlite cannot be used.*another folder[^\n]*$"
    with pytest.raises(UnreadableFile, match=complaint):
        [ResultStore(tmp_path).get(result_key({"number": number})) for number in range(20)]
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["file", "taken"])
def test_a_place_that_cannot_hold_a_store_is_one_clear_line(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "results.sqlite").mkdir(parents=True)
    assert str(tmp_path / name) in refusal(ResultStore, tmp_path / name)


def without_rights(folder, found):
    """What a user who may only read a store gets: its results, and clear lines."""
    if os.geteuid() == 0:
        os.setuid(65534)
    store = ResultStore(folder)
    actions = (lambda: store.put({"seed": 2}, {}), lambda: store.claim("abcdef", wait=True).__enter__())
    found.put((store.get(result_key({"seed": 1})), *map(refusal, actions)))


def test_a_store_that_may_not_be_written_can_be_read():
    found = FORK.SimpleQueue()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "store"
        ResultStore(folder).put({"seed": 1}, {"value": 1})
        for place in (folder / "results.sqlite", folder / "claims", folder, Path(name)):
            place.chmod(0o444 if place.is_file() else 0o555)
        reader = Forked(without_rights, folder, found)
        wait_until(lambda: not found.empty(), reader)
        record, no_write, no_claim = found.get()
        reader.join(PATIENCE)
        for place in (Path(name), folder, folder / "claims"):
            place.chmod(0o755)
    assert record == {"value": 1}
    assert "cannot be used: attempt to write a readonly database" in no_write
    assert re.search("cannot claim.*permission denied", no_claim)
