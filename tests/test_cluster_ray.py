"""Blocks on a real Ray of this machine: the same files for any number of workers, whoever is killed."""

import csv
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
import torch

pa = pytest.importorskip("pyarrow")
if find_spec("ray") is None:  # which is not imported here: it reads the environment that `connected` sets
    pytest.skip("Ray is not installed", allow_module_level=True)

import pyarrow.parquet as pq
from cluster_runs import BLOCK, CLASSES, contents, extract, extraction_of, predict, write_pictures
from effort import repeated
from processes import wait_for, wait_until

from pta.cli import on_cluster
from pta.cluster.blocks.tasks import ThisProcess, nothing_more
from pta.cluster.ray.prediction import predict_streams
from pta.cluster.ray.ray_pool import RayPool, connected
from pta.cluster.ray.storage import Folder
from pta.errors import InvalidParameter, MachineFailure, UnreadableSample
from pta.methods import load_adapter

COUNT = 90
BLOCKS = 6
KILLS = int(os.environ.get("PTA_CLUSTER_KILLS", repeated(5)))


@pytest.fixture(scope="module")
def ray():
    with connected("local") as started:
        yield started


@pytest.fixture(scope="module")
def two(ray):
    with RayPool(ray, 2, cpus=0.25) as pool:
        yield pool


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"), COUNT)


@pytest.fixture(scope="module")
def plain(pictures, tmp_path_factory):
    """The files that this process makes alone."""
    features, labels = tmp_path_factory.mktemp("features"), tmp_path_factory.mktemp("labels")
    extract(pictures, features)
    predict(pictures, labels)
    return contents(features, "safetensors"), contents(labels, "parquet")


def processes_below(parent):
    """The ids of the processes that a process has started, and those below."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])

    def is_ours(process):
        return process == parent or (process in parents and is_ours(parents[process]))

    return sorted(process for process in parents if is_ours(process) and process != parent)


def name_of(process):
    """The command line of a process that lives."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def workers_of(parent):
    """The process ids of the workers of a Ray that a process has started."""
    return [one for one in processes_below(parent) if name_of(one).startswith((b"ray::_Worker", b"ray::pta "))]


def test_two_workers_make_the_files_of_none(pictures, plain, two, tmp_path):
    extract(pictures, tmp_path / "features", two)
    predict(pictures, tmp_path / "labels", two)
    assert contents(tmp_path / "features", "safetensors") == plain[0]
    assert contents(tmp_path / "labels", "parquet") == plain[1]


@pytest.mark.extensive
def test_one_worker_makes_the_files_of_none(pictures, plain, ray, tmp_path):
    with RayPool(ray, 1, cpus=0.25) as one:
        predict(pictures, tmp_path / "one", one)
    assert contents(tmp_path / "one", "parquet") == plain[1]


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_killed_worker_changes_nothing(pictures, plain, two, tmp_path, seed):
    dice = random.Random(seed)
    due, killed = dice.randrange(4 * BLOCKS), []

    class Killing:
        """Kills a worker after some task or other of the run."""

        done = 0

        def each(self, tasks, shared, told=None, then=nothing_more):
            return two.each(tasks, shared, self._told, then)

        def _told(self, _):
            self.done += 1
            if self.done > due and not killed and (workers := workers_of(os.getpid())):
                killed.append(dice.choice(workers))
                os.kill(killed[0], signal.SIGKILL)

    predict(pictures, tmp_path / "out", Killing())
    assert killed
    assert contents(tmp_path / "out", "parquet") == plain[1]


@pytest.mark.extensive
def test_a_killed_driver_is_resumed_by_the_same_command(pictures, pta, two, monkeypatch, tmp_path):
    out = tmp_path / "labels"
    command = ["predict", str(pictures), "--classes", ",".join(CLASSES), "--model", "embedded", "--batch", "8"]
    command += ["--cluster", "local", "--parallel", "2", "--block", str(BLOCK), "--out", str(out)]
    with subprocess.Popen([sys.executable, "-m", "pta", *command], stderr=subprocess.PIPE, text=True) as driver:
        wait_until(lambda: any(out.glob("work/features/0*.safetensors")), driver)
        driver.kill()
    with in_this_ray(monkeypatch, two):
        resumed, unbroken = pta(*command), pta(*command[:-1], tmp_path / "unbroken")
    assert resumed.returncode == unbroken.returncode == 0, resumed.stderr
    assert f"{COUNT} labels" in resumed.stdout
    assert contents(out, "parquet") == contents(tmp_path / "unbroken", "parquet")


_HOLD = """
import os, sys, time
from pta.cluster.ray.ray_pool import RayPool, connected

class Hold:
    def __call__(self, shared):
        time.sleep(3600)

with connected("local") as ray, RayPool(ray, 1, cpus=0.25) as pool:
    pool.each([Hold()], None)
"""


@pytest.mark.extensive
def test_a_killed_driver_leaves_no_process_of_its_ray():
    """Ray's own agents would wait for a minute for the head; the claim is that they end, not when."""
    with subprocess.Popen([sys.executable, "-c", _HOLD], stderr=subprocess.PIPE, text=True) as driver:
        wait_until(lambda: workers_of(driver.pid), driver)
        below = {process: name_of(process) for process in processes_below(driver.pid)}
        assert len(below) > 4
        driver.kill()
    wait_for(lambda: not any(name_of(process) == name for process, name in below.items()))


def test_actors_and_tasks_have_names(ray, two):
    class Names:
        def __call__(self, shared):
            return ray.get_runtime_context().get_actor_name()

        def __repr__(self):
            return "Names"

    names = two.each([Names()] * 2, None)
    assert all(name.startswith("pta worker ") for name in names)


def test_a_driver_says_that_it_waits_while_no_block_ends(two, monkeypatch):
    monkeypatch.setattr("pta.cluster.ray.ray_pool._SECONDS", 0.1)
    heard = []

    class UntilHeard:
        def __call__(self, place):
            while not Path(place).exists():
                time.sleep(0.01)

    with TemporaryDirectory() as folder:

        def told(done):
            heard.append(done)
            (Path(folder) / "heard").touch()

        two.each([UntilHeard()], f"{folder}/heard", told)
    assert heard[0] == 0
    assert heard[-1] == 1


@contextmanager
def in_this_ray(monkeypatch, pool):
    """Let commands use the workers that are there, in the place of a Ray of their own."""

    @contextmanager
    def workers(self, device, threads):
        yield "cpu", pool

    with monkeypatch.context() as patch:
        patch.setattr(on_cluster.OnCluster, "workers", workers)
        yield


def test_streams_by_key_are_those_of_this_process(pictures, two, tmp_path):
    listed = tmp_path / "list.csv"
    lines = [f"{pictures}/{number:04d}.png,{number % 4}" for number in range(COUNT)]
    listed.write_text("path,camera\n" + "\n".join(lines))
    for name, pool in (("here", ThisProcess()), ("there", two)):
        extraction = extraction_of(listed, by="camera")
        predict_streams(extraction, "tda", {}, pool, Folder(str(tmp_path / name)))
    assert len(contents(tmp_path / "here", "parquet")) == 4
    assert {"zero_shot_probability", "entropy"} < set(rows_in(tmp_path / "here").column_names)
    assert contents(tmp_path / "here", "parquet") == contents(tmp_path / "there", "parquet")


def test_a_mistake_in_a_worker_is_one_line_here(tmp_path, two):
    damaged = write_pictures(tmp_path / "pictures", 20)
    (damaged / "0017.png").write_bytes(b"no picture")
    with pytest.raises(UnreadableSample, match=r"0017\.png") as refused:
        predict(damaged, tmp_path / "out", two)
    assert type(refused.value) is UnreadableSample
    assert "\n" not in str(refused.value)


@pytest.mark.extensive
def test_what_a_call_that_failed_leaves_behind_is_no_result_of_the_next(two):
    class Waiting:
        def __init__(self, seconds):
            self.seconds = seconds

        def __call__(self, shared):
            time.sleep(self.seconds)
            if not self.seconds:
                raise UnreadableSample("damaged")
            return shared

    for _ in range(3):  # more often than there are workers
        with pytest.raises(UnreadableSample, match="damaged"):
            two.each([Waiting(0.2), Waiting(0)], "first")
    assert two.each([Waiting(0.1)] * 3, "then") == ["then"] * 3


@pytest.mark.extensive
def test_fewer_workers_than_asked_for_are_enough(ray, pictures, plain, tmp_path):
    said = []
    there = int(ray.cluster_resources()["CPU"])
    with RayPool(ray, there + 1, say=said.append) as pool:
        extract(pictures, tmp_path / "features", pool)
    assert contents(tmp_path / "features", "safetensors") == plain[0]
    assert said[0] == f"{there + 1} workers were asked for, the cluster has room for {there}; it goes on with those"


@pytest.mark.extensive
def test_a_block_that_kills_every_worker_is_named(ray, monkeypatch):
    monkeypatch.setattr("pta.cluster.ray.ray_pool._ATTEMPTS", 1)

    class Fatal:
        def __call__(self, shared):
            os.kill(os.getpid(), signal.SIGKILL)

    with RayPool(ray, 1, cpus=0.25) as pool, pytest.raises(MachineFailure, match="died"):
        pool.each([Fatal()], None)


def test_a_ray_without_tokens_is_not_used(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(InvalidParameter, match="RAY_AUTH_MODE=token"), connected("auto"):
        pass


def test_where_no_ray_answers_one_line_says_what_to_start():
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    with pytest.raises(MachineFailure, match=f"no Ray can be reached at {address}.*ray start --head"):
        connected(address, trust_network=True).__enter__()


@pytest.mark.parametrize("error", [RuntimeError, ConnectionResetError])
def test_a_cluster_that_is_lost_is_not_the_user_s_mistake(monkeypatch, error):
    monkeypatch.setattr(os, "environ", {**os.environ})
    ray = SimpleNamespace(init=lambda *_, **__: None, shutdown=lambda: None)
    ray.exceptions = SimpleNamespace(RayError=RuntimeError)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(MachineFailure, match="the cluster at local was lost: the head is gone"), connected("local"):
        raise error("the head is gone")


def test_without_ray_one_line_says_what_to_install(pta, pictures, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = pta("extract", pictures, "--model", "embedded", "--cluster", "local", "--out", "out")
    assert done.returncode == 2
    assert "--cluster needs Ray and pyarrow; run pip install 'pta-vlm[ray]'" in done.stderr


def test_streams_by_key_need_a_cluster(pta, pictures):
    done = pta("predict", pictures, "--classes", "bag,shirt", "--model", "embedded", "--by", "folder")
    assert done.returncode == 2
    assert "give --cluster local" in done.stderr


@pytest.mark.parametrize("given", [["--resume"], ["--top", "3"], ["--by", "folder", "--state", "a.safetensors"]])
def test_options_without_a_meaning_on_a_cluster_are_refused(pta, pictures, given):
    common = ["--classes", "bag,shirt", "--model", "embedded", "--cluster", "local", "--out", "out"]
    done = pta("predict", pictures, *common, *given)
    assert done.returncode == 2
    assert given[0] in done.stderr


WITH_MODEL = ("--classes", ",".join(CLASSES), "--model", "embedded", "--batch", "8")
RUNS_WITH = "so that blocks give exactly what one stream would"


def rows_in(folder):
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("0*.parquet"))])


@pytest.fixture
def predict_here(pta, pictures, monkeypatch):
    """`pta predict --cluster local`, done by this process."""

    def predict_here(*given):
        with in_this_ray(monkeypatch, ThisProcess()):
            return pta("predict", pictures, *WITH_MODEL, "--cluster", "local", "--block", BLOCK, *given)

    return predict_here


def test_the_default_on_a_cluster_is_the_stream_without_prior_and_with_fixed_calibration(predict_here, pta, tmp_path):
    done = predict_here("--out", "default")
    assert done.returncode == 0, done.stderr
    assert f"pta: wpta runs with prior=none, calibration=fixed, {RUNS_WITH}\n" in done.stderr
    assert done.stderr.count(RUNS_WITH) == 1
    named = ("--method", "wpta", "--prior", "none", "--calibration", "fixed")
    again = predict_here("--out", "named", *named)
    assert RUNS_WITH not in again.stderr
    assert contents(tmp_path / "default", "parquet") == contents(tmp_path / "named", "parquet")
    own = (write_pictures(tmp_path / "pictures", COUNT), *WITH_MODEL, *named)
    alone = pta("predict", *own, "--state", "alone", "--out", "alone.csv")
    assert alone.returncode == 0, alone.stderr
    with (tmp_path / "alone.csv").open() as file:
        expected = list(csv.DictReader(file))
    table = rows_in(tmp_path / "default")
    assert table["label"].to_pylist() == [row["label"] for row in expected]
    for column in ("probability", "zero_shot_probability", "entropy"):
        assert table[column].to_pylist() == pytest.approx([float(row[column]) for row in expected], abs=1e-4)
    one, other = (load_adapter(tmp_path / name) for name in ("default/state.safetensors", "alone"))
    assert one.parameters == other.parameters
    assert one.parameters["gate"] == "balance"
    for name in ("total", "gram", "sums", "weights", "gate_total"):
        torch.testing.assert_close(one.state()[name], other.state()[name])


def test_stages_that_are_given_stay_and_are_refused_with_all_reasons(predict_here):
    gateless = predict_here("--out", "gateless", "--gate", "none", "--state", "a.safetensors")
    assert gateless.returncode == 0, gateless.stderr
    assert load_adapter("a.safetensors").parameters["gate"] == "none"
    for given, complaint in (
        (["--prior", "local"], "wpta with prior=local depends on every sample before"),
        (["--set", "wpta.calibration=matched"], "choose calibration=fixed, or give --by"),
        (["--method", "wpta"], "choose prior=none, calibration=fixed, or give --by"),
        (["--method", "pta", "--offset", "panda"], "pta with offset=panda depends on every sample before"),
    ):
        refused = predict_here("--out", "refused", *given)
        assert refused.returncode == 2
        assert complaint in refused.stderr
        assert RUNS_WITH not in refused.stderr
    goes_on = predict_here("--out", "later", "--state", "a.safetensors")
    assert goes_on.returncode == 0, goes_on.stderr
    assert RUNS_WITH not in goes_on.stderr


def test_blocks_follow_the_workers_at_the_first_start_and_stay(pta, pictures, monkeypatch, tmp_path):
    def run(workers, *given):
        pool = ThisProcess()
        monkeypatch.setattr(pool, "workers", workers, raising=False)
        with in_this_ray(monkeypatch, pool):
            return pta(
                "predict", pictures, *WITH_MODEL, "--method", "pta", "--cluster", "local", "--out", "out", *given
            )

    first = run(1)
    assert "90 samples in 2 blocks; 1 of 1 workers can be busy" in first.stderr
    before = contents(tmp_path / "out", "parquet")
    (tmp_path / "out" / sorted(before)[0]).unlink()
    later = run(1000)
    assert "90 samples in 2 blocks; 2 of 1,000 workers can be busy" in later.stderr
    assert contents(tmp_path / "out", "parquet") == before
    other = run(1, "--block", "16")
    assert other.returncode == 2
    assert "another block" in other.stderr


def test_a_state_of_pta_goes_on_as_pta_on_a_cluster(predict_here):
    assert predict_here("--out", "first", "--method", "pta", "--state", "a.safetensors").returncode == 0
    done = predict_here("--out", "second", "--state", "a.safetensors")
    assert done.returncode == 0, done.stderr
    assert RUNS_WITH not in done.stderr
    assert (load_adapter("a.safetensors").name, load_adapter("a.safetensors").position) == ("pta", 2 * COUNT)


@pytest.mark.parametrize("given", [["--method", "pta"], ["--prior", "none", "--calibration", "fixed"]])
def test_labels_are_learned_on_a_cluster_as_by_one_process(predict_here, pta, tmp_path, given):
    own = write_pictures(tmp_path / "pictures", COUNT)
    assert predict_here("--out", "plain", *given).returncode == 0
    keys = rows_in(tmp_path / "plain")["key"].to_pylist()
    alone = pta("predict", own, *WITH_MODEL, *given, "--out", "plain.csv")
    assert alone.returncode == 0, alone.stderr
    with (tmp_path / "plain.csv").open() as file:
        paths = [row["path"] for row in csv.DictReader(file)]
    told = {0: "none", 1: CLASSES[1], BLOCK - 1: CLASSES[0], BLOCK: CLASSES[2], COUNT - 1: CLASSES[1]}
    for name, places in (("keys.csv", keys), ("paths.csv", paths)):
        lines = ["path,label", *(f"{places[number]},{label}" for number, label in told.items())]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    done = predict_here("--out", "told", "--learn-labels", "keys.csv", *given)
    assert done.returncode == 0, done.stderr
    assert f"; {len(told)} given labels learned" in done.stdout
    again = predict_here("--out", "told", "--learn-labels", "keys.csv", *given)
    assert f"; {len(told)} given labels learned" in again.stdout
    alone = pta("predict", own, *WITH_MODEL, *given, "--learn-labels", "paths.csv", "--state", "a", "--out", "told.csv")
    assert alone.returncode == 0, alone.stderr
    with (tmp_path / "told.csv").open() as file:
        expected = list(csv.DictReader(file))
    table = rows_in(tmp_path / "told")
    for column in ("label", "learned_label"):
        assert table[column].to_pylist() == [row[column] for row in expected]
    for column in ("probability", "zero_shot_probability", "entropy"):
        assert table[column].to_pylist() == pytest.approx([float(row[column]) for row in expected], abs=1e-4)
    one, other = (load_adapter(tmp_path / name) for name in ("told/state.safetensors", "a"))
    assert one.position == other.position == COUNT - 1
    for name in {"knowledge", "anchored", "sums", "weights"} & set(one.state()):
        torch.testing.assert_close(one.state()[name], other.state()[name], rtol=0, atol=1e-5)
    by_key = predict_here("--out", "by-key", "--by", "folder", "--learn-labels", "keys.csv", *given)
    assert by_key.returncode == 0, by_key.stderr
    assert rows_in(tmp_path / "by-key")["learned_label"].to_pylist() == [row["learned_label"] for row in expected]
    wrong = predict_here("--out", "wrong", "--learn-labels", "paths.csv", *given)
    assert wrong.returncode == 0, wrong.stderr
    assert "paths.csv has no label for any of these samples; its paths are not their keys" in wrong.stderr
    assert predict_here("--out", "shadow", "--shadow", *given).returncode == 2


def test_streams_by_key_have_the_usual_default(predict_here, tmp_path):
    for out, given in (
        ("default", []),
        ("named", ["--method", "wpta", "--prior", "local", "--calibration", "matched"]),
    ):
        done = predict_here("--by", "folder", "--out", out, *given)
        assert done.returncode == 0, done.stderr
        assert RUNS_WITH not in done.stderr
    assert rows_in(tmp_path / "default").equals(rows_in(tmp_path / "named"))


@pytest.mark.extensive
def test_the_commands_go_from_pictures_over_features_to_labels(pta, pictures, two, monkeypatch, tmp_path):
    names = ",".join(CLASSES)
    with in_this_ray(monkeypatch, two):
        common = ["--cluster", "local", "--block", "32"]
        made = pta("extract", pictures, "--classes", names, "--model", "embedded", *common, "--out", "features")
        assert made.returncode == 0, made.stderr
        done = pta("predict", "features", *common, "--out", "labels", "--state", "a.safetensors")
        assert done.returncode == 0, done.stderr
        again = pta("predict", "features", *common, "--out", "labels", "--state", "a.safetensors")
        other = pta("predict", "features", *common, "--out", "others", "--state", "a.safetensors", "--method", "pta")
    assert other.returncode == 2
    assert "learned by wpta, not by pta" in other.stderr
    assert not (tmp_path / "others").exists()
    assert f"{COUNT} images, {COUNT} encoded now" in made.stdout
    assert again.stdout == done.stdout
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "labels" / "state.safetensors").read_bytes()
    assert len(list((tmp_path / "labels").glob("0*.parquet"))) == 3
