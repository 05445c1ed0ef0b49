"""Labels of learned samples: the state is that of a stream that had them from the start, bit for bit."""

import json
import re
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from processes import wait_for
from serving import CLASSES, CLASSIFIER, ask, learn_rows, live_stream, open_service, same_bits, saved, state_of

from pta import create_adapter
from pta.serve.journal.check import check_folder
from pta.serve.journal.rows import OperationRow
from pta.serve.requests import Refused, SampleLabel
from pta.serve.streams.history import History
from pta.serve.streams.labels import label_argument
from pta.serve.streams.past import Past
from pta.serve.streams.stage import one_thread

NAMES = CLASSIFIER.class_names
METHODS = ("pta", "wpta", "tda")


def label(service, labels, **others):
    """Label samples by sequence number; a number is a class, None none of the classes."""
    given = [SampleLabel(None if one is None else NAMES[one], sequence) for sequence, one in labels.items()]
    return service.operate("default", "label", labels=given, **others)


def settled(service):
    """The service, when its state has come to its labels."""
    live = live_stream(service)
    wait_for(lambda: not live.waiting)
    return service


def from_the_start(service, labels, method="pta", excluded=()):
    """The state of a stream that knew the labels when its samples came, with the groups of the journal."""
    adapter = create_adapter(method, CLASSIFIER)
    with one_thread("replay") as alone:
        for group in service._journal.groups(1):
            kept = [s not in excluded and labels.get(s, -1) is not None for s in group.sequences.tolist()]
            known = np.array([labels.get(s, -1) for s in group.sequences[kept].tolist()], np.int64)
            if any(kept):
                given = (known,) if (known >= 0).any() else ()
                alone.submit(learn_rows, adapter, group.features[kept], *given).result()
    return adapter.state()


def learn(service, count=12, size=3, source=None, seed=0):
    for number in range(count):
        ask(service, seed + number, count=size, source=source, id=f"{seed}-{number}")


def refused(status, call, *arguments, **others):
    with pytest.raises(Refused) as error:
        call(*arguments, **others)
    assert error.value.status == status
    return str(error.value)


def rows_and_state(service):
    return service._journal.operations(1), state_of(service)


@pytest.mark.parametrize("method", METHODS)
def test_a_correction_is_as_if_the_label_had_been_known(tmp_path, method):
    labels = {2: 3, 7: None, 11: 0, 12: 5, 30: 1}
    with open_service(tmp_path, method, snapshot_samples=10) as service:
        learn(service)
        before = state_of(service)
        done = label(service, labels)
        assert (done["operation"], done["samples"]) == ("label", 5)
        settled(service)
        expected = from_the_start(service, labels, method)
        assert same_bits(state_of(service), expected)
        assert not same_bits(before, expected)
        learn(service, seed=100)
        expected = from_the_start(service, labels, method)
        assert same_bits(state_of(service), expected)
    with open_service(tmp_path, method) as service:
        assert same_bits(state_of(service), expected)
    assert check_folder(tmp_path) == []


@pytest.mark.parametrize("method", METHODS)
def test_a_correction_after_ten_thousand_samples(tmp_path, method):
    with open_service(tmp_path, method, snapshot_samples=2000) as service:
        for number in range(80):
            ask(service, number, count=(1, 7, 256, 240)[number % 4])
        assert service.summary("default")["position"] > 10_000
        labels = {1: 2, 9: None, 300: 1, 9000: 0, 10_050: 5}
        label(service, labels)
        assert same_bits(state_of(settled(service)), from_the_start(service, labels, method))


def test_a_label_by_id_and_place_is_one_by_sequence(tmp_path):
    with open_service(tmp_path) as service:
        learn(service)
        service.operate("default", "label", labels=[SampleLabel(NAMES[4], id="0-3", place=1)])
        assert same_bits(state_of(settled(service)), from_the_start(service, {11: 4}))


def test_the_last_label_counts_and_undo_lifts_the_whole_operation(tmp_path):
    with open_service(tmp_path) as service:
        learn(service)
        label(service, {2: 3, 5: 1})
        label(service, {2: None, 9: 2})
        assert same_bits(state_of(settled(service)), from_the_start(service, {2: None, 5: 1, 9: 2}))
        assert service.operate("default", "undo", dry_run=True)["samples"] == 2
        service.operate("default", "undo")
        assert same_bits(state_of(service), from_the_start(service, {2: 3, 5: 1}))
        service.operate("default", "undo")
        assert same_bits(state_of(service), from_the_start(service, {}))


def test_touches_are_those_of_the_label(tmp_path):
    with open_service(tmp_path) as service:
        learn(service, count=1, size=1)
        label(service, {1: 4})
        touches = [one["touches"] for one in settled(service).summary("default")["classes"]]
        assert touches == [int(number == 4) for number in range(CLASSES)]


def test_a_label_has_no_effect_while_its_sample_is_excluded(tmp_path):
    with open_service(tmp_path, snapshot_samples=5) as service:
        learn(service, count=3, source="door")
        learn(service, count=3, seed=50)
        label(service, {2: 3, 14: 1})
        settled(service)
        service.operate("default", "unlearn", source="door")
        assert same_bits(state_of(service), from_the_start(service, {14: 1}, excluded=range(1, 10)))
        assert label(service, {2: 5})["replayed"] == 0
        settled(service)
        service.operate("default", "undo")  # the label
        service.operate("default", "undo")  # un-learning
        assert same_bits(state_of(service), from_the_start(service, {2: 3, 14: 1}))
        service.operate("default", "rewind", sequence=12)
        assert same_bits(state_of(service), from_the_start(service, {2: 3}, excluded=range(13, 100)))
        label(service, {14: 0})
        service.operate("default", "undo")
        service.operate("default", "undo")
        assert same_bits(state_of(settled(service)), from_the_start(service, {2: 3, 14: 1}))
        service.operate("default", "reset")
        label(service, {2: 1})
        assert settled(service).summary("default")["position"] == 0


@pytest.mark.parametrize("operation", [("rewind", {"sequence": 20}), ("unlearn", {"source": "door"}), ("undo", {})])
def test_an_operation_that_comes_while_labels_wait_has_them(tmp_path, monkeypatch, operation):
    kind, argument = operation
    with open_service(tmp_path, snapshot_samples=5) as service:
        learn(service, count=4, source="door")
        learn(service, count=4, seed=50)
        service.operate("default", "rewind", sequence=24)
        monkeypatch.setattr("pta.serve.streams.corrections._PAUSE", 5)
        labels = {2: 3, 15: None, 18: 0}
        label(service, labels)
        assert service.summary("default")["corrections"]["waiting"] == 3
        service.operate("default", kind, **argument)
        assert service.summary("default")["corrections"]["waiting"] == 0
        excluded = {"rewind": range(21, 99), "unlearn": range(1, 13), "undo": ()}[kind]
        expected = from_the_start(service, {} if kind == "undo" else labels, excluded=excluded)
        assert same_bits(state_of(service), expected)
    with open_service(tmp_path) as service:
        assert same_bits(state_of(service), expected)


def slow_replay(monkeypatch):
    """Replays that stop after their first group until they may go on."""
    begun, go_on, learn_group = threading.Event(), threading.Event(), Past._learn

    def wait(*arguments):
        if threading.current_thread().name.startswith("corrections"):
            begun.set()
            assert go_on.wait(60)
        learn_group(*arguments)

    monkeypatch.setattr(Past, "_learn", wait)
    return begun, go_on


def test_the_stream_learns_and_is_saved_while_labels_wait_which_are_then_one_replay(tmp_path, monkeypatch):
    begun, go_on = slow_replay(monkeypatch)
    with open_service(tmp_path, snapshot_samples=4) as service:
        learn(service)
        label(service, {2: 3})
        assert begun.wait(60)
        label(service, {3: 1})
        label(service, {8: None})
        learn(service, seed=50)
        live = live_stream(service)
        service._saving.save(live).result()
        shown = service.summary("default")
        assert shown["corrections"]["waiting"] == 3
        assert shown["corrections"]["of"] >= 1
        assert same_bits(state_of(service), from_the_start(service, {}))
        copied = [(one.sequence, one.fingerprint) for one in live.past.snapshots.saved]
        assert all(live.applied.fingerprint(sequence) == fingerprint for sequence, fingerprint in copied)
        go_on.set()
        settled(service)
        expected = from_the_start(service, {2: 3, 3: 1, 8: None})
        assert same_bits(state_of(service), expected)
        kinds = [row.kind for row in service._journal.operations(1)]
        assert kinds.count("corrected") == 2  # one that had begun, and one for the rest
    with open_service(tmp_path) as service:
        assert same_bits(state_of(service), expected)


def test_an_end_does_not_wait_for_a_replay_and_the_next_start_has_it(tmp_path, monkeypatch):
    begun, go_on = slow_replay(monkeypatch)
    service = open_service(tmp_path, snapshot_samples=4)
    learn(service)
    label(service, {2: 3, 20: 1})
    assert begun.wait(60)
    ended = threading.Thread(target=service.close)
    ended.start()
    while not service._corrections._ended.is_set():
        time.sleep(0.01)
    go_on.set()
    ended.join(60)
    monkeypatch.undo()
    with open_service(tmp_path) as service:
        assert service.summary("default")["corrections"]["waiting"] == 0
        assert same_bits(state_of(service), from_the_start(service, {2: 3, 20: 1}))


def test_a_label_without_an_effect_needs_no_replay(tmp_path):
    with open_service(tmp_path) as service:
        learn(service)
        service.operate("default", "reset")
        label(service, {2: 1})
        (row,) = [row for row in settled(service)._journal.operations(1) if row.kind == "corrected"]
        assert row.argument == {"until": 38, "samples": 0}
        service.operate("default", "undo")
        service.operate("default", "undo")
        assert same_bits(state_of(service), from_the_start(service, {}))


def test_labels_that_never_end_are_learned_in_between(tmp_path, monkeypatch):
    monkeypatch.setattr("pta.serve.streams.corrections._PAUSE", 0.02)
    with open_service(tmp_path) as service:
        learn(service)
        live, labels = live_stream(service), {}
        while not any(row.kind == "corrected" for row in live.operations):
            labels[1 + len(labels) % 36] = 2
            label(service, {1 + (len(labels) - 1) % 36: 2})
        assert same_bits(state_of(settled(service)), from_the_start(service, labels))


def contents(folder):
    return b"".join(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file())


def test_erasing_a_source_erases_its_labels_from_all_files_and_no_others(tmp_path):
    with open_service(tmp_path, snapshot_samples=5) as service:
        learn(service, count=4, source="door")
        learn(service, count=4, seed=50, source="yard")
        label(service, {2: 3, 4: 1, 15: 0})
        label(service, {5: 2})
        learn(service, count=2, seed=90, source="door")
        written = b'"door": [[2, 4], [3, 1]]'
        assert written in contents(tmp_path)
        settled(service).operate("default", "unlearn", source="door", erase=True)
        assert written not in contents(tmp_path)
        assert b'"yard": [[15], [0]]' in contents(tmp_path)
        assert not re.search(rb'"door": \[\[', contents(tmp_path))
        expected = from_the_start(service, {15: 0})
        assert same_bits(state_of(service), expected)
        assert "erased" in refused(404, label, service, {4: 1})
        learn(service, count=2, seed=200, source="door")
        expected = from_the_start(service, {15: 0})
        assert same_bits(state_of(service), expected)
    assert check_folder(tmp_path) == []
    with open_service(tmp_path) as service:
        assert same_bits(state_of(service), expected)
        assert live_stream(service).state.unsaved == 0  # the newest snapshot agrees
        service.operate("default", "delete")
    assert b'"yard": [[' not in contents(tmp_path)
    assert check_folder(tmp_path) == []


def test_a_killed_process_leaves_erasing_to_the_next_start(tmp_path):
    with open_service(tmp_path) as service:
        learn(service, source="door")
        learn(service, count=2, source="yard", seed=50)
        label(service, {2: 3, 40: 1})
        settled(service)
        argument = {"source": "door", "erase": True, "first": 1, "samples": 36}
        service._journal.operate(1, "unlearn", argument)  # and then it was killed
        live_stream(service).gone = True  # so that no snapshot is written
    assert b'"door": [[2], [3]]' in contents(tmp_path)
    with open_service(tmp_path) as service:
        assert b'"door": [[2], [3]]' not in contents(tmp_path)
        assert check_folder(tmp_path) == []
        assert same_bits(state_of(service), from_the_start(service, {40: 1}))


def test_a_journal_from_before_labels_is_read_and_is_then_for_newer_versions_alone(tmp_path):
    with open_service(tmp_path) as service:
        learn(service)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 2")
    assert check_folder(tmp_path) == []
    with open_service(tmp_path) as service:
        label(service, {2: 1})
        settled(service)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (4,)


def test_labels_and_rows_that_are_dropped_for_room(tmp_path):
    with open_service(tmp_path, snapshot_samples=20, journal_max=150_000) as service:
        for number in range(60):
            learn(service, count=4, size=10, seed=1000 * number)
            if number % 5 == 0:
                label(service, {service._journal.last(1)[0] - 3: 1, service._journal.last(1)[0] - 4: None})
        settled(service)
        oldest = service._journal.oldest(1)[0]
        assert oldest > 0
        assert "no longer reaches back" in refused(409, label, service, {oldest: 1})
        last = service._journal.last(1)[0]
        label(service, {last - 2: 4})
        settled(service)
        live = state_of(service)
    with open_service(tmp_path) as service:
        assert same_bits(state_of(service), live)
    assert check_folder(tmp_path) == []


def test_what_cannot_be_labelled_is_refused_and_changes_nothing(tmp_path):
    with open_service(tmp_path) as service:
        learn(service)
        state = service.export("default")
        service.operate("default", "freeze")
        before = rows_and_state(service)
        assert "no class is called 'cat'" in refused(
            422, service.operate, "default", "label", labels=[SampleLabel(NAMES[0], 1), SampleLabel("cat", 1)]
        )
        assert "is the operation freeze, not a sample" in refused(422, label, service, {1: 1, 37: 1})
        assert "ends at 37" in refused(404, label, service, {38: 1})
        by_id = lambda id, place: service.operate("default", "label", labels=[SampleLabel(None, None, id, place)])  # noqa: E731
        assert "no sample with the id 'nobody'" in refused(404, by_id, "nobody", 0)
        assert "places 0 to 2, not at 3" in refused(422, by_id, "0-1", 3)
        after = rows_and_state(service)
        assert before[0] == after[0]
        assert same_bits(before[1], after[1])
        service.operate("default", "import", content=state)
        assert "is before the import at 38" in refused(409, label, service, {2: 1})
        service.operate("default", "undo")
        label(service, {2: 1}, dry_run=True)


def test_a_method_without_labels_and_a_service_without_a_journal_refuse_them(tmp_path):
    with open_service(tmp_path, "clip") as service:
        learn(service)
        assert "clip does not learn labels" in refused(409, label, service, {1: 1})
    with open_service(None) as service:
        learn(service)
        assert "--no-journal" in refused(409, label, service, {1: 1})


def test_a_dry_run_counts_and_changes_nothing(tmp_path):
    with open_service(tmp_path, snapshot_samples=9) as service:
        learn(service)
        live = live_stream(service)
        saved(service)
        sequences = [one.sequence for one in live.past.snapshots.saved]
        counted = label(service, {30: 1, 31: None}, dry_run=True)
        start = max(one for one in sequences if one < 30)
        assert (counted["samples"], counted["replayed"], counted["sequence"]) == (2, 36 - start, None)
        assert service._journal.operations(1) == []
        assert label(service, {30: 1})["replayed"] == 36 - start
        settled(service)
        assert label(service, {30: 1}, dry_run=True)["samples"] == 0


def test_the_timeline_has_the_number_of_labels_and_not_each(tmp_path):
    with open_service(tmp_path) as service:
        learn(service)
        label(service, dict.fromkeys(range(1, 30), 2))
        shown = settled(service).summary("default")["timeline"]
        assert [(one["kind"], one["samples"]) for one in shown if one["kind"] == "label"] == [("label", 29)]
        assert len(json.dumps(shown)) < 2000


def test_the_first_answer_is_given_again_by_what_was_known_then(tmp_path, monkeypatch):
    """Answers that were not written are computed from the labels that the state had, and no others."""
    begun, go_on = slow_replay(monkeypatch)
    service = open_service(tmp_path, "wpta", snapshot_samples=1000)
    learn(service)
    label(service, dict.fromkeys(range(1, 20), 5))
    assert begun.wait(60)
    first = {"before": ask(service, 500, id="before", count=3)}
    go_on.set()
    settled(service)
    first["after"] = ask(service, 500, id="after", count=3)
    label(service, {38: 2})
    settled(service)
    service.close()
    with open_service(tmp_path, "wpta") as service:
        with service._journal._database.writing, service._journal._database.transaction() as connection:
            connection.execute("UPDATE batches SET answers = NULL")
        for id, reply in first.items():
            again = ask(service, 500, id=id, count=3)
            assert again.repeated
            assert again.outputs["probability"].tolist() == reply.outputs["probability"].tolist()
    different = [reply.outputs["probability"].tolist() for reply in first.values()]
    assert different[0] != different[1]


def test_a_hundred_thousand_labels_are_one_table():
    rows = []
    for number in range(25):
        labels = {number * 4096 + place: (None, place % 7) for place in range(4096)}
        rows.append(OperationRow(200_000 + number, 0.0, "label", label_argument(labels)))
    history = History.of(rows)
    assert len(history.labels.sequences) == 102_400
    assert history.labels_of(np.array([4096 * 3 + 8])).tolist() == [1]
