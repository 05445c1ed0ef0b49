"""Classes that are added to a service: by a start with a longer list, with a row in the journal."""

import numpy as np
import pytest
import torch
from serving import CLASSIFIER, ask, features, same_bits, state_of

from pta import ZeroShotClassifier
from pta.errors import PtaError
from pta.methods.classes import add_class
from pta.serve.journal.check import check_folder
from pta.serve.streams.answering import samples_from
from pta.serve.streams.served_model import ServedModel, ServiceSettings
from pta.serve.streams.service import Service

NEW = torch.nn.functional.normalize(torch.randn(2, CLASSIFIER.dim, generator=torch.Generator().manual_seed(9)), dim=1)
NAMES = [*CLASSIFIER.class_names, "seventh", "eighth"]
LONGER = ZeroShotClassifier(torch.cat([CLASSIFIER.anchors, NEW]), NAMES, CLASSIFIER.scale)


def opened(folder, classifier, method="pta", **settings):
    return Service.open(ServedModel(classifier, method), folder, ServiceSettings(**settings))


@pytest.mark.parametrize("method", ["pta", "wpta", "sca"])
@pytest.mark.parametrize("snapshots", [None, 2])
def test_a_longer_list_adds_classes_to_every_stream(tmp_path, method, snapshots):
    with opened(tmp_path, CLASSIFIER, method, snapshot_samples=snapshots) as service:
        service.create("other")
        for seed in range(5):
            ask(service, seed, id=f"{seed}", count=2)
        before, first = state_of(service), ask(service, 4, id="4", count=2)
    with opened(tmp_path, LONGER, method) as service:
        again = ask(service, 4, id="4", count=2)
        assert again.repeated
        assert again.labels == first.labels
        grown = state_of(service)
        assert len(service.summary("other")["classes"]) == len(NAMES)
        assert ask(service, NEW.numpy()[:1], stream="other").labels == ["seventh"]
        assert ask(service, NEW.numpy()[1:]).labels == ["eighth"]
        live = {name: state_of(service, name) for name in ("default", "other")}
        timeline = service.summary("default")["timeline"]
        assert [row["argument"]["names"] for row in timeline if row["kind"] == "classes"] == [["seventh", "eighth"]]
    for name, tensor in before.items():
        if tensor.ndim and method == "pta":
            assert torch.equal(grown[name][: len(tensor)], tensor)
    assert check_folder(tmp_path) == []
    with opened(tmp_path, LONGER, method) as service:
        assert all(same_bits(state_of(service, name), state) for name, state in live.items())


def test_a_replay_has_old_samples_among_old_classes_and_new_ones_among_all(tmp_path):
    with opened(tmp_path, CLASSIFIER) as service:
        ask(service, 1, count=3)
    with opened(tmp_path, LONGER) as service:
        ask(service, 2, count=3)
        service.operate("default", "rewind", sequence=3)  # before the classes were added, which stay
        ask(service, 3, count=3)
        found = service._streams
        with found.using("default") as stream:
            adapter = stream.state.adapter.clone()
    own = ServedModel(CLASSIFIER, "pta").fresh()
    own.step(samples_from(rounded_features(1)))
    for name, anchor in zip(NAMES[-2:], NEW, strict=True):
        own = add_class(own, name, anchor)
    own.step(samples_from(rounded_features(3)))
    for name, tensor in own.state().items():
        torch.testing.assert_close(adapter.state()[name], tensor)


def rounded_features(seed):
    rows = features(seed, 3)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)


def test_what_is_no_longer_list_is_refused_and_changes_nothing(tmp_path):
    with opened(tmp_path, LONGER) as service:
        ask(service, 1)
    for other in (
        CLASSIFIER,  # a shorter one
        ZeroShotClassifier(LONGER.anchors, [*NAMES[:-1], "another"], LONGER.scale),
        ZeroShotClassifier(torch.cat([LONGER.anchors.flip(0), NEW[:1]]), [*NAMES, "ninth"], LONGER.scale),
    ):
        with pytest.raises(PtaError, match="belongs to another service"):
            opened(tmp_path, other)
    with opened(tmp_path, LONGER) as service:
        assert service.streams()[0]["sequence"] == 1


def test_a_method_that_depends_on_how_many_classes_there_are_says_so(tmp_path):
    opened(tmp_path, CLASSIFIER, "bca").close()
    with pytest.raises(PtaError, match="no class can be added"):
        opened(tmp_path, LONGER, "bca")


def test_a_start_that_was_killed_while_it_added_classes_goes_on(tmp_path, monkeypatch):
    with opened(tmp_path, CLASSIFIER) as service:
        service.create("other")
        for stream in ("default", "other"):
            ask(service, 1, stream=stream)
    with monkeypatch.context() as killed:
        killed.setattr("pta.serve.streams.service._mark", lambda served, path: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path, LONGER)
    with opened(tmp_path, LONGER) as service:
        assert [one["sequence"] for one in service.streams()] == [2, 2]
        assert ask(service, NEW.numpy()[:1], stream="other").labels == ["seventh"]
