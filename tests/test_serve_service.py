"""What the service promises about samples: learned once, in order, after they are written; and who is refused."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from serving import (
    CLASSIFIER,
    ask,
    features,
    in_threads,
    live_stream,
    open_service,
    replayed,
    request,
    same_bits,
    state_of,
)

from pta import create_adapter, list_adapters
from pta.errors import InvalidParameter, MachineFailure
from pta.serve.requests import Refused
from pta.serve.streams.answering import StreamState
from pta.serve.streams.past import Past
from pta.serve.streams.served_model import ServedModel


def refused(status, call, *arguments, **named):
    with pytest.raises(Refused) as caught:
        call(*arguments, **named)
    assert caught.value.status == status
    return caught.value


def learn_from_many(service, clients=6, each=8):
    return in_threads(clients, lambda n: [ask(service, 100 * n + i, source=f"camera {n}") for i in range(each)])


def test_the_state_has_the_bits_of_a_replay_of_the_journals_groups(tmp_path):
    with open_service(tmp_path) as service:
        learn_from_many(service)
        assert service._journal.count(1) == 48
        assert same_bits(state_of(service), replayed(service._journal))


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_a_restart_gives_the_same_bits(tmp_path, with_snapshot):
    with open_service(tmp_path) as service:
        learn_from_many(service)
        live = state_of(service)
    if not with_snapshot:
        for path in tmp_path.glob("streams/*/snapshots/*"):
            path.unlink()
    with open_service(tmp_path) as service:
        assert same_bits(live, state_of(service))
        assert service.streams()[0]["sequence"] == 48


@pytest.mark.parametrize("method", ["pta", "wpta"])
def test_a_stream_goes_on_after_a_restart_with_the_bits_of_one_that_was_never_stopped(tmp_path, method):
    for start in (0, 20):  # wpta refreshes at 16 and at 32
        with open_service(tmp_path / "stopped", method) as stopped:
            for seed in range(start, start + 20):
                ask(stopped, seed)
            after = state_of(stopped)
    with open_service(tmp_path / "whole", method) as whole:
        for seed in range(40):
            ask(whole, seed)
        assert same_bits(after, state_of(whole))


def served_methods():
    for name in list_adapters():
        try:
            ServedModel(CLASSIFIER, name)
            yield name
        except InvalidParameter:
            pass


@pytest.mark.parametrize("method", sorted(served_methods()))
def test_unlearning_a_source_equals_the_stream_that_never_had_it(tmp_path, method):
    with open_service(tmp_path, method) as service, open_service(None, method) as without:
        for seed in range(24):
            source = "street" if seed % 3 == 0 else "kitchen"
            ask(service, seed, source=source, count=1 + seed % 2)
            if source == "kitchen":
                ask(without, seed, source=source, count=1 + seed % 2)
        assert service.operate("default", "unlearn", source="street", dry_run=True)["samples"] == 12
        service.operate("default", "unlearn", source="street")
        expected = state_of(without)
        for name, tensor in state_of(service).items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("method", "why"), [("transclip", "whole stream"), ("zero", "views"), ("tpt", "tower")])
def test_a_method_that_needs_more_than_features_is_refused_with_the_reason(method, why):
    with pytest.raises(InvalidParameter, match=why):
        ServedModel(CLASSIFIER, method)


def test_an_id_is_learned_once_however_often_and_however_concurrently_it_is_sent(tmp_path):
    with open_service(tmp_path) as service:
        replies = in_threads(12, lambda n: ask(service, n % 3, id=f"sample {n % 3}", count=2))
        again = [ask(service, n, id=f"sample {n}", count=2) for n in range(3)]
        assert sum(not reply.repeated for reply in replies) == 3
        assert service.streams()[0]["position"] == 6
        for n, reply in enumerate(again):
            assert reply.repeated
            first = next(r for r in replies if r.id == reply.id and not r.repeated)
            assert reply.labels == first.labels
            assert reply.outputs["sequence"].tolist() == first.outputs["sequence"].tolist()
            assert reply.outputs["probability"].tolist() == first.outputs["probability"].tolist()
            assert refused(409, ask, service, n + 50, id=f"sample {n}", count=2)
        ask(service, 1, id="sample 1", count=2, learn="false")
        assert service.streams()[0]["position"] == 6
    with open_service(tmp_path) as service:
        assert [ask(service, n, id=f"sample {n}", count=2).labels for n in range(3)] == [r.labels for r in again]


def test_an_answer_that_a_killed_process_did_not_write_is_computed_again(tmp_path):
    with open_service(tmp_path, snapshot_samples=4) as service:
        for seed in range(8):
            ask(service, seed)
        first = ask(service, 9, id="the last", count=3)
        service._pipeline.last_answers.groups.clear()  # as a kill would
    with open_service(tmp_path) as service:
        assert service._journal.find(1, hashlib.blake2b(b"the last", digest_size=16).digest()).answers is None
        again = ask(service, 9, id="the last", count=3)
        assert again.repeated
        assert again.labels == first.labels
        np.testing.assert_allclose(again.outputs["probability"], first.outputs["probability"], atol=1e-5)


def test_a_commit_that_fails_changes_nothing_and_ends_learning_until_a_restart(tmp_path, monkeypatch):
    with open_service(tmp_path) as service:
        ask(service, 1)
        before = state_of(service)

        def fail(*_):
            service._journal._database.read_only = "disk full"
            raise MachineFailure("disk full")

        monkeypatch.setattr(service._journal, "commit", fail)
        assert "disk full" in str(refused(503, ask, service, 2))
        assert refused(503, ask, service, 3)
        reply = ask(service, 4, learn="try")
        assert (reply.learned, reply.outputs["sequence"].tolist()) == (False, [-1])
        assert "disk full" in reply.reason
        assert ask(service, 5, learn="false").reason is None
        assert same_bits(before, state_of(service))
        assert service.reason == "disk full"


def test_frozen_streams_and_full_quotas_answer_without_learning(tmp_path):
    with open_service(tmp_path, quota=3) as service:
        assert ask(service, 1, count=3, learn="try").learned
        assert "per minute" in ask(service, 2, learn="try").reason
        assert refused(429, ask, service, 2).retry_after
        service.operate("default", "freeze")
        assert "frozen" in ask(service, 2, learn="try").reason
        refused(409, ask, service, 2)
        assert service.streams()[0]["position"] == 3
    with open_service(tmp_path) as service:
        refused(409, ask, service, 2)
        service.operate("default", "thaw")
        assert ask(service, 2).learned


def test_a_full_queue_and_a_draining_service_refuse(tmp_path):
    with open_service(tmp_path, queue=4) as service:
        assert refused(429, service.submit, request(1, count=5)).retry_after
        assert ask(service, 1, count=4).learned
        assert service.drain(60)
        refused(503, service.submit, request(2))
        assert not service.ready


def test_an_operation_that_is_under_way_is_finished_before_the_end_and_no_other_begins(tmp_path, monkeypatch):
    service = open_service(tmp_path)
    ask(service, 1, source="street")
    begun, go_on = threading.Event(), threading.Event()
    prepare = Past.nearly_now

    def wait(*arguments):
        begun.set()
        go_on.wait()
        return prepare(*arguments)

    monkeypatch.setattr(Past, "nearly_now", wait)
    with ThreadPoolExecutor(3) as threads:
        under_way = threads.submit(service.operate, "default", "unlearn", source="street")
        begun.wait()
        later = threads.submit(service.operate, "default", "freeze")
        service.drain(0)
        end = threads.submit(service.close)
        go_on.set()
        assert under_way.result()["samples"] == 1
        assert refused(503, later.result)
        end.result()
    refused(503, service.create, "another")
    with open_service(tmp_path) as service:
        assert service.streams()[0]["position"] == 0


def test_a_stream_that_cannot_learn_does_not_keep_others_from_it(tmp_path, monkeypatch):
    with open_service(tmp_path) as service:
        service.create("other")
        broken = live_stream(service)
        learn, jobs = StreamState.learn, []

        def fail(state, *arguments):
            if state is broken.state:
                raise MemoryError
            return learn(state, *arguments)

        monkeypatch.setattr(StreamState, "learn", fail)
        for stream in ("default", "other"):
            _, job = service._pending.admit(request(1, stream=stream))
            jobs.append(job)
        service._pipeline._learn_group(jobs)
        with pytest.raises(MemoryError):
            jobs[0].future.result()
        assert jobs[1].future.result().learned
        assert "could not learn" in str(refused(503, ask, service, 2))
        assert ask(service, 2, stream="other").learned
    with open_service(tmp_path) as service:
        assert [stream["position"] for stream in service.streams()] == [1, 2]


def test_streams_are_apart_and_made_by_name_or_on_first_use(tmp_path):
    with open_service(tmp_path, auto_create=1) as service:
        refused(422, service.create, "a/b")
        ask(service, 1, stream="street")
        refused(404, ask, service, 1, stream="garden")
        service.create("garden")
        ask(service, 2, stream="garden", count=2)
        assert {one["name"]: one["position"] for one in service.streams()} == {"default": 0, "street": 1, "garden": 2}
        service.operate("street", "delete")
        refused(404, service.summary, "street")
    with open_service(tmp_path) as service:
        assert {one["name"]: one["position"] for one in service.streams()} == {"default": 0, "garden": 2}


def test_without_a_journal_samples_are_learned_and_nothing_can_be_rewound():
    with open_service(None) as service:
        assert not service.shape.durable
        assert ask(service, 1, count=2).outputs["sequence"].tolist() == [1, 2]
        refused(409, service.operate, "default", "rewind", sequence=1)
        assert service.operate("default", "reset")["samples"] == 2
        assert service.streams()[0]["position"] == 0


def test_a_summary_counts_what_was_answered(tmp_path):
    with open_service(tmp_path) as service:
        version = service.version("default")
        for seed in range(5):
            ask(service, seed, source="kitchen", count=4)
        ask(service, 9, learn="false")
        summary = service.summary("default")
        assert (summary["answered"], summary["learned"], summary["position"]) == (21, 20, 20)
        assert sum(one["answers"] for one in summary["classes"]) == 21
        assert sum(one["touches"] for one in summary["classes"]) >= 20
        assert summary["sources"] == [{"source": "kitchen", "samples": 20}]
        assert 0 <= summary["changed"]["100"] <= 1
        assert summary["latency_ms"]["p99"] >= summary["latency_ms"]["p50"] > 0
        assert service.version("default") > version


def test_a_summary_has_the_weights_of_a_method_that_keeps_them_and_no_touches():
    with open_service(None, "wpta") as service:
        ask(service, 1, count=20)
        classes = service.summary("default")["classes"]
    adapter = create_adapter("wpta", CLASSIFIER)
    adapter.step(np.float32(np.float16(features(1, 20))))
    np.testing.assert_allclose([one["weight"] for one in classes], adapter.weights, atol=1e-3)
    assert {one["touches"] for one in classes} == {None}


def test_answers_are_those_of_the_adapter(tmp_path):
    rows = features(5, 4)
    with open_service(tmp_path) as service:
        reply = ask(service, rows, top=2, logits=True)
    adapter = create_adapter("pta", CLASSIFIER)
    logits = adapter.step(rows)
    np.testing.assert_allclose(reply.outputs["logits"], logits, atol=0.1)  # features are rounded to float16
    assert reply.labels == [CLASSIFIER.class_names[n] for n in logits.argmax(dim=1)]
    assert [row[0] for row in reply.outputs["top_label"]] == reply.labels
    assert reply.outputs["top_probability"][:, 0].tolist() == reply.outputs["probability"].tolist()
