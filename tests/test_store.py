"""The result store: real processes share it, none loses anything, and a kill costs nothing that was kept."""

import os
import random
import signal
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from processes import PATIENCE, Forked, wait_until

from pta.errors import InvalidParameter, PtaError, UnreadableFile
from pta.evaluation.result_store import ResultStore, result_key

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
    for writer in range(2):
        for number in range(40):
            assert store.get(result_key({"writer": writer, "number": number})) == {"value": writer * 1000 + number}


def test_a_claim_is_held_against_others_and_a_kill_frees_it(store, tmp_path):
    held = FORK.Event()
    holder = Forked(hold, tmp_path / "store", "abcdef", held)
    wait_until(held.is_set, holder)
    with store.claim("abcdef", wait=False) as mine:
        assert not mine
    with store.claim("fedcba", wait=False) as mine:
        assert mine
    os.kill(holder.pid, signal.SIGKILL)
    with store.claim("abcdef", wait=True) as mine:
        assert mine
    holder.join(PATIENCE)


def test_whoever_waits_for_a_claim_gets_it_when_it_ends(store):
    got = threading.Event()

    def second():
        with store.claim("abcdef", wait=True) as mine:
            assert mine
            got.set()

    waiting = threading.Thread(target=second)
    with store.claim("abcdef", wait=False) as mine:
        assert mine
        waiting.start()
        assert not got.wait(0.3)
    assert got.wait(PATIENCE)
    waiting.join(PATIENCE)


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
        os.kill(writer.pid, signal.SIGKILL)
        writer.join(PATIENCE)
        store = ResultStore(tmp_path / "store")
        values = [store.get(result_key({"number": number}))["value"] for number in range(len(store))]
        assert values == list(range(len(store)))  # what was put is there, whole, and nothing is there by half


# -- what cannot be used ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"not a database at all, but long enough to be looked at" * 40,
        lambda content: content[:5000] + b"\xff" * 9000,
        lambda content: content.replace(b'{"value"', b'{"val"x1'),
    ],
    ids=["other", "cut off", "record"],
)
def test_a_damaged_database_is_one_clear_line_and_stays_as_it_is(tmp_path, damage):
    store, path = ResultStore(tmp_path), tmp_path / "results.sqlite"
    for number in range(20):
        store.put({"number": number}, {"value": "x" * 1000})
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(
        UnreadableFile, match=r"^the results in .*results\.sqlite cannot be used.*another folder[^\n]*$"
    ):
        [ResultStore(tmp_path).get(result_key({"number": number})) for number in range(20)]
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("table", ["songs (title TEXT)", "results (id INTEGER, score REAL)"])
def test_the_database_of_another_program_is_left_alone(tmp_path, table):
    path = tmp_path / "results.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {table}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(UnreadableFile, match=r"results\.sqlite cannot be used.*another folder"):
        ResultStore(tmp_path)
    assert path.read_bytes() == before


def test_a_place_that_cannot_hold_a_store_is_one_clear_line(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "results.sqlite").mkdir(parents=True)
    for folder in (tmp_path / "file", tmp_path / "taken"):
        with pytest.raises(UnreadableFile) as caught:
            ResultStore(folder)
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)


def without_rights(folder):
    """What a user who may only read a store gets: its results, and clear lines."""
    if os.geteuid() == 0:
        os.setuid(65534)
    store = ResultStore(folder)
    lines = []
    for action in (lambda: store.put({"seed": 2}, {}), lambda: store.claim("abcdef", wait=True).__enter__()):
        try:
            action()
        except PtaError as error:
            lines.append(str(error))
    return store.get(result_key({"seed": 1})), lines


def test_a_store_that_may_not_be_written_can_be_read():
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(1, mp_context=FORK) as other:
        folder = Path(name) / "store"
        ResultStore(folder).put({"seed": 1}, {"value": 1})
        for place in (folder / "results.sqlite", folder / "claims", folder, Path(name)):
            place.chmod(0o444 if place.is_file() else 0o555)
        record, lines = other.submit(without_rights, folder).result(timeout=PATIENCE)
        for place in (Path(name), folder, folder / "claims"):
            place.chmod(0o755)
    assert record == {"value": 1}
    assert len(lines) == 2
    assert "cannot be used: attempt to write a readonly database" in lines[0]
    assert "cannot claim" in lines[1]
    assert "permission denied" in lines[1]
