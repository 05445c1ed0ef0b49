"""The contract around a method: registry, state files, resetting."""

import json
import pickle
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from odd_tensors import ODD_VALUES, odd_id
from refusals import refusal, unless_refused
from safetensors.torch import load_file, save_file

import pta
from pta.door.files import load_tensors, save_tensors
from pta.errors import InvalidParameter, StateMismatch, UnreadableFile
from pta.methods import from_bytes
from pta.methods.toys import ToyModel, ToyStream


@pytest.fixture
def classifier():
    anchors = torch.randn(5, 8, generator=torch.Generator().manual_seed(1)) + 1
    return pta.ZeroShotClassifier(anchors, [f"class {number}" for number in range(5)])


@pytest.fixture
def features():
    return torch.randn(30, 8, generator=torch.Generator().manual_seed(2)) + 1


@pytest.fixture
def adapter(classifier, features):
    """One that has learned something."""
    adapter = pta.PTA(classifier)
    adapter.step(features)
    return adapter


def load_bytes(path, *given, **named):
    return from_bytes(path.read_bytes(), *given, **named)


@pytest.fixture(params=[pta.load_adapter, load_bytes], ids=["file", "bytes"])
def load(request):
    """The two doors for a state: its file, and the content of its file."""
    return request.param


@pytest.fixture
def saved(adapter, tmp_path):
    adapter.save(tmp_path / "state.safetensors")
    return tmp_path / "state.safetensors"


def assert_unchanged(adapter, before):
    assert all(torch.equal(tensor, before.tensors[name]) for name, tensor in adapter.state().items())


def test_an_unknown_method_is_answered_with_the_nearest(classifier):
    with pytest.raises(InvalidParameter, match="did you mean 'clip'"):
        pta.create_adapter("clipp", classifier)


def test_an_adapter_moves_with_its_state_and_can_still_be_reset(adapter, classifier, features):
    expected = adapter.predict(features)
    assert adapter.to("cpu") is adapter
    torch.testing.assert_close(adapter.predict(features), expected)
    adapter.reset()
    torch.testing.assert_close(adapter.step(features), pta.PTA(classifier).step(features))


@pytest.mark.parametrize("name", ["pta", "combined"])
def test_an_adapter_moves_to_another_device_with_everything_it_keeps(name, classifier, features, monkeypatch):
    adapter = pta.create_adapter(name, classifier)
    adapter.step(features)
    # Any machine has the device "meta". An adapter refuses it, because a tensor there has no numbers.
    monkeypatch.setattr("pta.methods.adapter.device_named", torch.device)
    monkeypatch.setattr(
        pta.ZeroShotClassifier, "to", lambda self, device: SimpleNamespace(anchors=self.anchors.to(device))
    )
    assert adapter.to("meta") is adapter
    assert {tensor.device.type for tensor in adapter.state().values()} == {"meta"}
    assert {piece.owner.classifier.anchors.device.type for piece in adapter.pieces.values()} == {"meta"}


def rewrite(path, change_about=None, change_tensors=None):
    tensors, about = load_tensors(path, kind="state")
    save_tensors(path, tensors | (change_tensors or {}), about | (change_about or {}))


@pytest.mark.parametrize(
    ("kind", "about", "complaint"),
    [
        (StateMismatch, {"version": 99}, "state version 99"),
        (StateMismatch, {"class_names": ["x"]}, "other classes: only the state has 'x'; only the given list has"),
        (StateMismatch, {"scale": 7.0}, "another model or other templates"),
        (StateMismatch, {"bias": None}, "another model or other templates"),
        (StateMismatch, {"method": "clip", "parameters": {}}, "clip keeps"),
        (StateMismatch, {"parameters": None}, "does not say"),
        (InvalidParameter, {"method": "future"}, "future"),
        (StateMismatch, {"class_names": 7}, "other classes: it does not name them"),
        (InvalidParameter, {"parameters": {"model": None}}, "no parameter 'model'"),
        (InvalidParameter, {"parameters": {"source": [[1.0]]}}, "no parameter 'source'"),
    ],
)
def test_a_state_of_something_else_is_refused_in_one_line(load, classifier, saved, kind, about, complaint):
    rewrite(saved, change_about=about)
    with pytest.raises(kind, match=complaint):
        load(saved, classifier)


def test_classes_in_another_order_are_other_classes(load, classifier, saved):
    turned = pta.ZeroShotClassifier(classifier.anchors.flip(0), classifier.class_names[::-1], classifier.scale)
    with pytest.raises(StateMismatch, match=f"same names in another order, first '{classifier.class_names[0]}', "):
        load(saved, turned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_is_enough_to_go_on_without_the_classifier(load, classifier, features, tmp_path, dtype):
    adapter = pta.create_adapter("tda", classifier.to(dtype=dtype), positive_beta=7.0)
    adapter.step(features)
    adapter.save(tmp_path / "state.safetensors")
    loaded = load(tmp_path / "state.safetensors")
    assert loaded.classifier.fingerprint == adapter.classifier.fingerprint
    assert (loaded.parameters, loaded.classifier.anchors.dtype) == (adapter.parameters, dtype)
    assert torch.equal(loaded.step(features), adapter.step(features))


def test_a_state_of_a_method_with_a_tower_needs_the_model_and_no_classifier(load, classifier, tmp_path):
    model, path = ToyModel(classifier.dim, torch.float32), tmp_path / "state.safetensors"
    pta.create_adapter("tca", classifier, model=model).save(path)
    assert load(path, model=model).classifier.fingerprint == classifier.fingerprint
    with pytest.raises(InvalidParameter, match="tca needs the image tower of a model"):
        load(path)


@pytest.mark.parametrize("about", [{"class_names": None}, {"scale": "x"}, {"bias": 1e9}, {"class_names": ["x"]}])
def test_a_state_with_a_damaged_classifier_is_refused_in_one_line(load, saved, about):
    rewrite(saved, change_about=about)
    assert "holds no classifier" in refusal(load, saved)


def test_a_state_belongs_to_its_anchors_but_not_to_their_last_bits(load, classifier, saved):
    nudged = classifier.anchors + 1e-6 * torch.randn(classifier.anchors.shape)
    load(saved, pta.ZeroShotClassifier(nudged, classifier.class_names, classifier.scale, classifier.bias))
    turned = classifier.anchors.clone()
    turned[1] += 0.05 * turned[0]
    other = pta.ZeroShotClassifier(turned, classifier.class_names, classifier.scale, classifier.bias)
    with pytest.raises(StateMismatch, match="another model or other templates"):
        load(saved, other)


@pytest.mark.parametrize("kept", [0, 7, 100, -10])
def test_a_truncated_state_is_refused(load, classifier, saved, kept):
    saved.write_bytes(saved.read_bytes()[:kept])
    with pytest.raises(UnreadableFile, match="truncated"):
        load(saved, classifier)


def test_a_missing_or_foreign_file_is_refused(classifier, tmp_path):
    with pytest.raises(UnreadableFile, match="no such state file"):
        pta.load_adapter(tmp_path / "nothing", classifier)
    save_file({"x": torch.ones(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(UnreadableFile, match="not a state file"):
        pta.load_adapter(tmp_path / "foreign.safetensors", classifier)


def test_bytes_of_a_state_are_the_content_of_its_file(adapter, saved):
    assert adapter.to_bytes() == saved.read_bytes()
    assert adapter.to_bytes(stream={"samples": 30}) != saved.read_bytes()


def test_foreign_bytes_are_refused(classifier, load, tmp_path):
    path = tmp_path / "foreign.safetensors"
    save_file({str(number): torch.ones(0) for number in range(2**14 + 1)}, path, metadata={"about": "{}"})
    assert "has 16,385 tensors" in refusal(load, path, classifier)
    save_file({"x": torch.ones(1)}, path)
    assert "not a state file of pta" in refusal(load, path, classifier)
    for content in (b"[]", b"{}", b"[" * 10**6, b'{"__metadata__": 7}', b'{"__metadata__": {"about": 7}}'):
        path.write_bytes(len(content).to_bytes(8, "little") + content)
        assert "the state" in refusal(from_bytes, path.read_bytes(), classifier)
        refusal(load, path, classifier)


@pytest.mark.parametrize("content", [None, "state", 7, [b"x"], b"", b"12345678{}"], ids=str)
def test_what_is_not_the_content_of_a_file_is_refused(classifier, content):
    assert "the state cannot be read as a state file" in refusal(from_bytes, content, classifier)


def test_saving_leaves_no_other_file_and_says_so_where_nothing_can_be_written(classifier, saved, tmp_path):
    assert list(saved.parent.iterdir()) == [saved]
    with pytest.raises(UnreadableFile, match="cannot write"):
        pta.PTA(classifier).save(tmp_path / "missing folder" / "state.safetensors")


@pytest.mark.parametrize("classes", [[5], [-1], [True], ["1"]])
def test_resetting_a_class_that_does_not_exist_is_refused(adapter, classes):
    before = adapter.snapshot()
    with pytest.raises(InvalidParameter, match="does not exist"):
        adapter.reset(classes=classes)
    assert_unchanged(adapter, before)


def test_state_takes_two_vectors_and_a_few_numbers_per_class():
    classes, dim = 300, 256
    classifier = pta.ZeroShotClassifier(torch.randn(classes, dim), [str(number) for number in range(classes)])
    assert pta.PTA(classifier).state_bytes <= 2 * classes * dim * 4 + 16 * classes + 16


def test_an_interrupted_save_leaves_the_file_as_it_was(adapter, features, saved, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = saved.read_bytes()
    adapter.step(features)
    monkeypatch.setattr(Path, "replace", interrupt)  # when everything is written
    with pytest.raises(KeyboardInterrupt):
        adapter.save(saved)
    assert saved.read_bytes() == before


def test_what_is_no_model_is_refused(adapter, classifier):
    with pytest.raises(InvalidParameter, match="needs the image tower of a model"):
        pta.create_adapter("tca", classifier, model="embedded")
    adapter.reset(classes=torch.tensor([1, 3]))


# -- a state from outside ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("knowledge", lambda t: t * torch.nan),
        ("knowledge", lambda t: t[:, :-1]),
        ("knowledge", lambda t: t * 0 + 1e30),
        ("knowledge", lambda t: torch.nn.functional.normalize(t + 1) * 1.01),
        ("anchored", lambda t: t * 0.5),
        ("anchored", lambda t: t * 0),
        ("length", lambda t: t * 2),
        ("length", lambda t: -t),
        ("seen", lambda t: t * 0 + 2**53 + 1),
        ("seen", lambda t: t * 0 - 5),
        ("touched", lambda t: t.to(torch.uint8)),
    ],
)
def test_a_state_file_that_no_stream_could_lead_to_is_refused(load, classifier, saved, name, change):
    rewrite(saved, change_tensors={name: change(load_file(saved)[name])})
    with pytest.raises(StateMismatch, match=rf"state(\.safetensors)?: {name} ") as refused:
        load(saved, classifier)
    assert "\n" not in str(refused.value)


def test_flags_of_other_bytes_than_0_and_1_are_1(load, classifier, saved):
    whole, flags = saved.read_bytes(), load_file(saved)["touched"].to(torch.uint8).numpy().tobytes()
    header = int.from_bytes(whole[:8], "little")
    place = 8 + header + json.loads(whole[8 : 8 + header])["touched"]["data_offsets"][0]
    saved.write_bytes(whole[:place] + bytes([2] * len(flags)) + whole[place + len(flags) :])
    assert load(saved, classifier).touched.view(torch.uint8).tolist() == [1] * len(flags)


def test_a_description_that_is_too_deep_is_one_line(load, classifier, saved):
    save_file(load_file(saved), saved, metadata={"about": "[" * 10**5})
    with pytest.raises(UnreadableFile, match="its description is not JSON"):
        load(saved, classifier)


def test_a_state_that_takes_too_much_memory_is_refused_unread(load, classifier, saved, monkeypatch):
    monkeypatch.setattr("pta.core.limits.available_memory", lambda: 100)
    with pytest.raises(UnreadableFile, match="unpacks to"):
        load(saved, classifier)


def test_a_pickled_adapter_with_another_state_is_refused(adapter):
    adapter.knowledge *= 1e30
    with pytest.raises(StateMismatch, match="the state: knowledge must be"):
        pickle.loads(pickle.dumps(adapter))


def test_a_snapshot_is_copied_without_its_graph(adapter):
    snapshot = adapter.snapshot()
    tensors = {**snapshot.tensors, "knowledge": snapshot.tensors["knowledge"].clone().requires_grad_()}
    adapter.restore(replace(snapshot, tensors=tensors))
    assert not adapter.knowledge.requires_grad
    tensors["knowledge"].detach().fill_(7)
    assert adapter.knowledge.abs().max() <= 1


@pytest.mark.parametrize("part", ["method", "parameters", "classifier", "tensors", "knowledge", "touched"])
@pytest.mark.parametrize("value", ODD_VALUES, ids=odd_id)
def test_an_odd_part_of_a_snapshot_is_refused_and_nothing_changes(adapter, part, value):
    whole = adapter.snapshot()
    inside = part in whole.tensors
    odd = replace(whole, tensors={**whole.tensors, part: value}) if inside else replace(whole, **{part: value})
    with pytest.raises(StateMismatch) as refused:
        adapter.restore(odd)
    assert "\n" not in str(refused.value)
    assert_unchanged(adapter, whole)


# -- odd values at the edge ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ODD_VALUES, ids=odd_id)
def test_an_odd_value_is_refused_in_one_line_and_nothing_changes(adapter, classifier, tmp_path, value):
    before = adapter.snapshot()
    is_path = isinstance(value, str)
    uses = [
        lambda: pta.create_adapter("pta", value),
        lambda: pta.create_adapter("tca", classifier, model=value),
        lambda: pta.create_adapter("onzeta", classifier, source=value),
        lambda: pta.PTA(value),
        lambda: pta.load_adapter(value, classifier),
        lambda: pta.load_adapter(tmp_path / "nothing", value),
        lambda: pta.Segment.load(value),
        lambda: adapter.apply(value),
        lambda: adapter.summarise(value),
        lambda: adapter.predict(value),
        lambda: adapter.step(value),
        lambda: None if is_path else adapter.save(value),
        lambda: None if value is None else adapter.reset(classes=[value]),
    ]
    for use in uses:
        unless_refused(use)
    for use in (
        lambda: pta.create_adapter(value, classifier),
        lambda: pta.compose(value, value),
        lambda: adapter.restore(value),
    ):
        with suppress(TypeError, AttributeError):  # of a wrong type
            unless_refused(use)
    assert_unchanged(adapter, before)
    if value is not None:
        unless_refused(lambda: adapter.reset(classes=value))


def test_a_state_that_was_saved_for_the_tower_of_another_model_is_refused(load, classifier, tmp_path):
    model, path = ToyModel(classifier.dim, torch.float32), tmp_path / "state.safetensors"
    pta.create_adapter("tca", classifier, model=model).save(path)
    load(path, classifier, model=model)
    model.fingerprint = "another"
    with pytest.raises(StateMismatch, match="was saved for the towers of another model"):
        load(path, classifier, model=model)


@pytest.mark.parametrize("device", ["nonsense", "cuda:99", "meta", 10**30, None, [], 1.5], ids=str)
def test_a_device_that_is_not_there_is_refused(adapter, device):
    unless_refused(lambda: adapter.to(device))
    assert adapter.classifier.anchors.device.type == "cpu"
    assert adapter.knowledge.device.type == "cpu"


@pytest.mark.parametrize("name", pta.list_adapters())
def test_parameters_of_odd_values_are_refused_in_one_line_or_used(name):
    method = pta.methods.adapter_class(name)
    stream = ToyStream.make(method, 1)
    for parameter in method.declared:
        for value in ODD_VALUES:
            given = {"length": 5} if name == "onzeta" else {}
            unless_refused(
                lambda given=given | {parameter: value}: method(stream.classifier, model=stream.model, **given)
            )


def test_one_class_is_forgotten_and_the_others_stay(classifier, features):
    adapter = pta.PTA(classifier, min_probability=0.0)
    adapter.step(features)
    before = adapter.knowledge.clone()
    adapter.reset(classes=[1])
    assert before.any(dim=1).all()
    assert not adapter.knowledge[1].any()
    assert torch.equal(adapter.knowledge[[0, 2]], before[[0, 2]])
    assert adapter.position == len(features)
