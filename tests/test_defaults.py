"""The method where people label their own data: the default, and what a state or a data folder has in its place."""

import json
from contextlib import suppress
from inspect import signature

import pytest
from cases import other_values
from photos import FASHION, write_classes, write_photos
from serving import CLASSIFIER, ask, same_bits, state_of

import pta
from pta.cli.options import MethodOptions, ModelOptions, StageOptions, TextOptions
from pta.cli.serve import ServedOptions
from pta.door.files import load_tensors
from pta.errors import InvalidParameter, StateMismatch
from pta.methods import DEFAULT_METHOD, load_adapter
from pta.models import load_encoder
from pta.serve.streams.served_model import ServedModel
from pta.serve.streams.service import Service

BEFORE = {  # what earlier versions wrote: pta by default, wpta without calibration, and without a gate before that
    "pta": ("pta", {}),
    "pta with another h": ("pta", {"h": 50.0}),
    "wpta, fixed": ("wpta", {"calibration": "fixed"}),
    "wpta without gate": ("wpta", {"calibration": "fixed", "gate": "none"}),
}
WITH_BEFORE = pytest.mark.parametrize(("method", "parameters"), BEFORE.values(), ids=BEFORE)


def given(method, parameters):
    """Options of a command."""
    return ["--method", method, *(f"--set={method}.{name}={value}" for name, value in parameters.items())]


# -- without a state --------------------------------------------------------------------------------------------------


def test_wpta_is_the_default_of_python():
    classifier = pta.Classifier("embedded", FASHION.class_names, cache=None)
    assert (DEFAULT_METHOD, classifier.adapter.name) == ("wpta", "wpta")
    assert classifier.adapter.parameters == pta.WPTA(classifier.classifier).parameters
    stages = {name: classifier.adapter.parameters[name] for name in ("prior", "gate", "calibration")}
    assert stages == {"prior": "local", "gate": "balance", "calibration": "matched"}
    sklearn = pytest.importorskip("sklearn")
    assert sklearn.base.clone(pta.PTAClassifier()).method == "wpta"
    assert "h" not in signature(pta.PTAClassifier).parameters


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("defaults")
    write_photos(folder / "photos", 40)
    write_classes(folder / "classes.txt")
    return folder


@pytest.fixture
def predict(pta, place):
    """What a command that succeeds says."""

    def predict(*arguments):
        known = ("--classes", "classes.txt", "--model", "embedded", "--device", "cpu")
        done = pta("predict", *arguments, *known, cwd=place)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return predict


def test_predict_learns_as_wpta(predict, tmp_path):
    assert "wpta changed " in predict("photos", "--state", tmp_path / "default", "--out", tmp_path / "default.csv")
    predict("photos", "--method", "wpta", "--state", tmp_path / "named", "--out", tmp_path / "named.csv")
    assert (tmp_path / "default.csv").read_bytes() == (tmp_path / "named.csv").read_bytes()
    default, named = (load_adapter(tmp_path / name) for name in ("default", "named"))
    assert (default.name, default.parameters) == (named.name, named.parameters)
    assert same_bits(default.state(), named.state())


def test_eval_compares_zero_shot_with_the_paper_s_rule(pta, pets):
    records = json.loads(pta("eval", "--features", pets, "--json", "-").stdout)
    assert [record["method"] for record in records] == ["clip", "pta"]


# -- a state ----------------------------------------------------------------------------------------------------------


@WITH_BEFORE
def test_a_state_goes_on_with_its_method_and_parameters(predict, place, tmp_path, method, parameters):
    bag, coat = place / "photos" / "bag", place / "photos" / "coat"
    for name in ("named", "unnamed"):
        predict(bag, *given(method, parameters), "--state", tmp_path / name, "--out", tmp_path / f"{name}-1.csv")
    predict(coat, "--method", method, "--state", tmp_path / "named", "--out", tmp_path / "named-2.csv")
    assert f"; {method} changed " in predict(coat, "--state", tmp_path / "unnamed", "--out", tmp_path / "unnamed-2.csv")
    assert (tmp_path / "named-2.csv").read_bytes() == (tmp_path / "unnamed-2.csv").read_bytes()
    (named, about), (unnamed, other) = (load_tensors(tmp_path / name, kind="state") for name in ("named", "unnamed"))
    assert same_bits(named, unnamed)
    assert about["parameters"] == other["parameters"]
    assert parameters.items() <= load_adapter(tmp_path / "unnamed").parameters.items()


@WITH_BEFORE
def test_a_classifier_takes_the_method_of_a_state(tmp_path, method, parameters):
    encoder, path = load_encoder("embedded", device="cpu"), tmp_path / "state"
    before = pta.Classifier(encoder, FASHION.class_names, method=method, cache=None, **parameters)
    before(list(FASHION.images[:20]))
    before.save(path)
    after = pta.Classifier(encoder, FASHION.class_names, cache=None)
    after.load(path)
    assert (after.adapter.name, after.adapter.parameters) == (method, before.adapter.parameters)
    assert after(list(FASHION.images[20:30])) == before(list(FASHION.images[20:30]))
    assert same_bits(after.adapter.state(), before.adapter.state())


# -- a data folder ----------------------------------------------------------------------------------------------------


def opened(folder, method=None, set_=None, **stages):
    """The service that `pta serve` opens with these options."""
    chosen = MethodOptions(method=method, set_=set_, stages=StageOptions(**stages))
    options = ServedOptions(model=ModelOptions(), texts=TextOptions(), method=chosen)
    return Service.open(ServedModel(CLASSIFIER, **options.adaptation(folder)), folder)


def learn(service, seeds):
    return [ask(service, seed, count=3) for seed in seeds]


def test_a_new_folder_has_the_default(tmp_path):
    with opened(tmp_path) as default, opened(tmp_path / "named", "wpta") as named:
        assert default.shape.method == "wpta"
        assert "calibration_gaps" in state_of(default)
        for service in (default, named):
            learn(service, range(5))
        assert same_bits(state_of(default), state_of(named))


@pytest.mark.parametrize(("method", "parameters"), [*BEFORE.values(), ("onzeta", {"length": 100})], ids=str)
@pytest.mark.parametrize("is_named", [False, True], ids=["unnamed", "named"])
def test_a_data_folder_goes_on_with_its_method_and_parameters(tmp_path, method, parameters, is_named):
    with Service.open(ServedModel(CLASSIFIER, method, parameters), tmp_path / "unbroken") as unbroken:
        learn(unbroken, range(10))
        expected = state_of(unbroken)
    with Service.open(ServedModel(CLASSIFIER, method, parameters), tmp_path / "folder") as service:
        learn(service, range(5))
    with opened(tmp_path / "folder", method if is_named else None) as service:
        assert service.shape.method == method
        learn(service, range(5, 10))
        assert same_bits(state_of(service), expected)
    again = {name: one for name, one in parameters.items() if name in ("gate", "calibration")}
    with opened(tmp_path / "folder", **again) as service:  # what it has may also be said
        assert same_bits(state_of(service), expected)


@pytest.mark.parametrize(
    ("before", "now", "complaint"),
    [
        ("pta", {"method": "wpta"}, "was written with method 'pta', and is opened with 'wpta'"),
        ("pta", {"set_": ["pta.h=3"]}, "was written with pta.h 20.0, and is opened with 3.0"),
        ("pta", {"calibration": "matched"}, "was written with pta.calibration 'fixed', and is opened with 'matched'"),
        ("pta", {"set_": ["wpta.ridge=3"]}, "--set wpta.ridge: the method is pta"),
        ("wpta, fixed", {"calibration": "matched"}, "calibration 'fixed', and is opened with 'matched'"),
        ("wpta, fixed", {"method": "wpta", "prior": "none"}, "prior 'local', and is opened with 'none'"),
        ("wpta, fixed", {"method": "pta"}, "was written with method 'wpta', and is opened with 'pta'"),
        ("wpta without gate", {"gate": "balance"}, "was written without wpta.gate, and is opened with 'balance'"),
    ],
)
def test_options_that_contradict_a_data_folder_are_refused_in_one_line(tmp_path, before, now, complaint):
    method, parameters = BEFORE[before]
    with Service.open(ServedModel(CLASSIFIER, method, parameters), tmp_path) as service:
        learn(service, range(3))
        expected = state_of(service)
    with pytest.raises((InvalidParameter, StateMismatch)) as refusal:
        opened(tmp_path, **now)
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)
    with opened(tmp_path) as service:
        assert same_bits(state_of(service), expected)


def test_the_identity_of_a_folder_is_enough_to_serve_what_was_served():
    """Whatever the defaults are, for every method and every value of a parameter."""
    written_by = set()
    for method, switch in [*other_values(), ("combined", {"base": "wpta"}), ("combined", {"base": "clip", "h": 5.0})]:
        with suppress(InvalidParameter):  # what cannot be served, or not without a length
            written = json.loads(json.dumps(ServedModel(CLASSIFIER, method, switch).identity))
            assert ServedModel(CLASSIFIER, method).as_written(written).identity == written
            written_by.add(method)
    assert {"combined", "pta", "tda", "wpta"} <= written_by


def test_a_damaged_identity_is_not_believed(tmp_path):
    with Service.open(ServedModel(CLASSIFIER, "pta"), tmp_path) as service:
        learn(service, range(3))
    journal = tmp_path / "journal.sqlite"
    content = journal.read_bytes()
    assert content.count(b'"method": "pta"') == 1
    journal.write_bytes(content.replace(b'"method": "pta"', b'"method": "ptz"'))
    with pytest.raises(pta.errors.UnreadableFile, match="is damaged"):
        opened(tmp_path)
