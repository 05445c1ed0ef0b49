"""What workers share: tasks go where their block is, blocks stay in memory, labels are repaired in their files."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("pyarrow")

from cluster_runs import BLOCK, Backwards, contents, extract, predict, write_pictures

from pta.cluster import cut, replay_block, summarise_block
from pta.cluster.blocks import loop
from pta.cluster.blocks.tasks import Task, TaskQueue, ThisProcess
from pta.cluster.ray import findings
from pta.cluster.ray.findings import BlockMemory, StoredBlocks
from pta.cluster.ray.label_block import labelled
from pta.cluster.ray.prediction import FeatureFolder, predict_blocks
from pta.cluster.ray.storage import Folder, read_run
from pta.methods import create_adapter

COUNT = 90
SLOW = {"w": 0.9, "h": 1000.0}  # needs repair


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    extract(write_pictures(folder / "pictures", COUNT), folder / "features")
    return folder / "features"


@pytest.fixture(scope="module")
def slow(features, tmp_path_factory):
    """A finished run that was repaired."""
    out = tmp_path_factory.mktemp("slow")
    done = predict(features, out, parameters=SLOW)
    assert done.rounds > 1
    return out


def predict_with(features, out, memory, pool=None, **parameters):
    source = FeatureFolder.find(str(features))
    adapter = create_adapter("pta", source.classifier(), **parameters)
    predict_blocks(source, adapter, pool or ThisProcess(), Folder(str(out)), 1e-6, memory=memory)


def nothing(shared, k):
    return None


def queue_of(*blocks, keepers):
    return TaskQueue([Task(nothing, (k,)) for k in blocks], keepers=keepers)


def test_a_worker_gets_the_block_that_it_has_and_then_those_that_nobody_has():
    queue = queue_of(0, 1, 2, 3, keepers={0: "other", 3: "own"})
    assert [queue.take("own") for _ in range(3)] == [1, 2, 3]
    assert queue.take("own") == 0  # better than to wait for the other
    assert queue.take("own") is None


def test_a_task_of_a_worker_that_died_is_done_first():
    queue = queue_of(0, 1, keepers={})
    number = queue.take("dying")
    queue.waiting.appendleft(number)
    assert queue.take("dying") == number


def test_tasks_that_follow_come_before_those_that_wait_and_their_results_last():
    following = {0: [Task(nothing, (7,)), Task(nothing, (8,))]}
    queue = TaskQueue([Task(nothing, (k,)) for k in range(3)], lambda task, _: following.get(task.arguments[0], []))
    done = []
    while (number := queue.take()) is not None:
        done.append(queue.tasks[number].arguments[0])
        queue.finish(number, done[-1])
    assert done == [0, 7, 8, 1, 2]
    assert queue.is_done
    assert queue.ordered() == [0, 1, 2, 7, 8]


def test_memory_keeps_what_was_used_last_within_its_limit():
    memory = BlockMemory(100)
    for k in range(3):
        memory.keep(k, f"block {k}", 40)
        memory.get(0)
    assert [memory.get(k) for k in range(3)] == ["block 0", None, "block 2"]
    memory.keep(3, "too large", 101)
    assert memory.get(3) is None


def test_logits_that_are_kept_change_no_bit(features):
    source = FeatureFolder.find(str(features))
    adapter, rows = create_adapter("pta", source.classifier()), torch.randn(600, source.classifier().dim)
    block = cut(range(600), rows, 600)[0]
    scored = block.scored(adapter.classifier)
    summary = summarise_block(adapter, block)
    assert summarise_block(adapter, scored).to_bytes() == summary.to_bytes()
    (plain, end), (kept, end_of_kept) = (
        replay_block(adapter, one, summary, adapter.state()) for one in (block, scored)
    )
    assert all(torch.equal(a, b) for a, b in zip(vars(plain).values(), vars(kept).values(), strict=True))
    assert all(torch.equal(end[name], end_of_kept[name]) for name in end)


@pytest.mark.parametrize("memory", [0, 16 * 512 * 4, 2**30])
def test_files_are_the_same_with_any_memory_for_blocks(features, slow, tmp_path, memory):
    predict_with(features, tmp_path, memory, Backwards(), **SLOW)
    assert contents(tmp_path, "parquet") == contents(slow, "parquet")


def test_a_block_that_fits_is_read_once(features, tmp_path, monkeypatch):
    read = []

    def counting(folder, rows, run):
        read.append(rows.start // BLOCK)
        return read_block(folder, rows, run)

    read_block = findings.read_block
    monkeypatch.setattr(findings, "read_block", counting)
    predict_with(features, tmp_path / "kept", 2**30)
    assert sorted(read) == list(range(6))
    predict_with(features, tmp_path / "not-kept", 0)
    assert len(read) > 6 + 2 * 6 - 1


def test_a_replay_begins_before_the_last_summary(features):
    names = []

    class Recording(ThisProcess):
        def each(self, tasks, shared, told=None, then=None):
            def followed(task, result):
                names.append(task.function.__name__)
                return then(task, result) if then else ()

            return super().each(tasks, shared, then=followed)

    classifier = FeatureFolder.find(str(features)).classifier()
    work = loop.BlocksInMemory(create_adapter("pta", classifier), cut(range(60), torch.randn(60, classifier.dim), 10))
    loop.run_passes(work, Recording(), [0] * 6)
    assert names.index("_replay") < len(names) - names[::-1].index("_summarise") - 1


def test_states_hold_the_classes_that_have_learned_and_come_back(features, tmp_path):
    source = FeatureFolder.find(str(features))
    adapter = create_adapter("pta", source.classifier())
    work = Folder(str(tmp_path))
    found = adapter, work, source.blocks, 1e-6, BlockMemory()
    stored = StoredBlocks(*found, "run", source.folder, source.inputs, work)
    moved = adapter.clone()
    moved.step(stored.block(0).features[:1])
    start, end = ({name: tensor.clone() for name, tensor in one.state().items()} for one in (adapter, moved))
    stored.put("states-0000", 0, loop.Round(start, end, 3, 2))
    back = stored.get("states-0000", 0)
    assert (back.rows, back.path) == (3, 2)
    for one, other in ((start, back.start), (end, back.end)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    whole = sum(tensor.numel() * tensor.element_size() for tensor in [*start.values(), *end.values()])
    assert len(work.sub("states-0000").read(findings.block_name(source.blocks[0]))) < whole / 2


def test_answers_come_back_from_a_label_file(features, tmp_path):
    source = FeatureFolder.find(str(features))
    adapter, out = create_adapter("pta", source.classifier()), Folder(str(tmp_path))
    stored = StoredBlocks(adapter, out, source.blocks, 1e-6, BlockMemory(), "run", source.folder, source.inputs, out)
    block = stored.block(0)
    answers, _ = replay_block(adapter, block, summarise_block(adapter, block), adapter.state())
    stored.answer(0, answers, 2)
    assert all(torch.equal(a, b) for a, b in zip(vars(answers).values(), vars(stored.answers(0)).values(), strict=True))
    assert stored.answered(0, 2) == stored.answered(0)
    assert stored.answered(0, 3) is None
    assert replace(stored, run="another").answered(0) is None


@pytest.mark.parametrize("stopped_at", ["_replay", "_repair", "_answer"])
def test_labels_before_their_repair_are_not_taken_for_done(features, slow, tmp_path, monkeypatch, stopped_at):
    class Killed(BaseException):
        pass

    left = [3]

    def killed(*given):
        left[0] -= 1
        if not left[0]:
            raise Killed
        return whole(*given)

    whole = getattr(loop, stopped_at)
    with monkeypatch.context() as patch:
        patch.setattr(loop, stopped_at, killed)
        with pytest.raises(Killed):
            predict(features, tmp_path, parameters=SLOW)
    predict(features, tmp_path, parameters=SLOW)
    assert contents(tmp_path, "parquet") == contents(slow, "parquet")


def test_a_finished_run_that_lost_a_block_is_open_until_all_are_repaired(features, slow, tmp_path, monkeypatch):
    predict(features, tmp_path, parameters=SLOW)
    next(tmp_path.glob("0*.parquet")).unlink()

    def stopped(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_answer", stopped)
        with pytest.raises(KeyboardInterrupt):
            predict(features, tmp_path, parameters=SLOW)
    out = Folder(str(tmp_path))
    about = read_run(out, "labels")
    assert not about["finished"]
    assert all(labelled(out, path.name, about["run"]) for path in tmp_path.glob("0*.parquet"))  # not yet repaired
    predict(features, tmp_path, parameters=SLOW)
    assert contents(tmp_path, "parquet") == contents(slow, "parquet")


def test_a_scan_in_two_levels_has_the_same_bits_in_any_order(features, monkeypatch):
    monkeypatch.setattr(loop, "GROUP", 3)
    classifier = FeatureFolder.find(str(features)).classifier()
    blocks = cut(range(100), torch.randn(100, classifier.dim), 10)
    adapter = create_adapter("pta", classifier)

    def passed(pool):
        return loop.run_passes(loop.BlocksInMemory(adapter, blocks), pool, [0] * 10, lambda *_: lambda done: None)

    class Slow(Backwards):
        """Ends the scan of the first group after all else."""

        def each(self, tasks, shared, told=None, then=lambda *_: ()):
            kept = []

            def held(task, result):
                if task.function is loop._scan and task.arguments[0].start == 0:
                    kept.append((task, result))
                    return ()
                return then(task, result)

            done = super().each(tasks, shared, then=held)
            for one in kept:
                done += self.each(then(*one), shared, then=then)
            return done

    one, *others = [passed(pool) for pool in (ThisProcess(), Backwards(), Slow())]
    for other in others:
        assert all(torch.equal(one.end[name], other.end[name]) for name in one.end)
        for a, b in zip(one.answers, other.answers, strict=True):
            assert torch.equal(a.probabilities, b.probabilities)
