"""Presets are data: they name real datasets and real parameters, and what they lack is said, not guessed."""

import json
from importlib import resources

import pytest

from pta import ZeroShotClassifier, create_adapter, list_adapters
from pta.adapters.base import parameters_of
from pta.adapters.presets import has_preset, load_preset, preset_names, require_preset
from pta.datasets.catalogue import catalogue
from pta.errors import InvalidParameter

FILES = sorted((resources.files("pta") / "data" / "presets").iterdir(), key=lambda file: file.name)
METHODS = [file.name.removesuffix(".json") for file in FILES]


def test_every_file_belongs_to_a_method_and_says_where_it_comes_from():
    assert set(METHODS) == {"adapt", "boostadapter", "dota", "pta", "tca", "tda"}
    assert set(METHODS) < set(list_adapters())
    assert all("_origin" in json.loads(file.read_text()) for file in FILES)


@pytest.mark.parametrize("method", METHODS)
def test_every_value_is_for_a_known_dataset_and_parameter(method):
    content = json.loads((resources.files("pta") / "data" / "presets" / f"{method}.json").read_text())
    for name, by_dataset in content.items():
        if name == "_origin":
            continue
        for dataset, values in by_dataset.items():
            assert dataset == "*" or dataset in catalogue()
            assert set(values) <= set(parameters_of(method))


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"tca"}))
def test_every_preset_makes_its_method(method):
    classifier = ZeroShotClassifier([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    for name in preset_names([method]):
        for dataset in catalogue():
            values = load_preset(method, name, dataset)
            if values is not None:
                adapter = create_adapter(method, classifier, **values)
                assert {key: adapter.parameters[key] for key in values} == values


@pytest.mark.parametrize(
    ("method", "dataset", "values"),
    [
        ("tda", "eurosat", {"positive_alpha": 4.0, "positive_beta": 8.0}),
        ("tda", "imagenet_sketch", {"positive_alpha": 2.363, "positive_beta": 7.45}),
        ("boostadapter", "stanford_cars", {"positive_alpha": 1.0, "positive_beta": 7.0, "delta": 3}),
        ("dota", "food101", {"epsilon": 4e-5, "eta": 0.1, "rho": 0.01}),
        ("pta", "caltech101", {"h": 50.0}),
    ],
)
def test_some_values_of_the_papers(method, dataset, values):
    assert load_preset(method, "paper", dataset) == values


def test_a_corruption_of_imagenet_counts_as_imagenet_c():
    assert load_preset("adapt", "paper", "imagenet_c/fog/5") == load_preset("adapt", "paper", "imagenet_c") is not None


def test_a_star_stands_for_every_dataset():
    assert load_preset("pta", "non-iid", "my_photos") == {"h": 1000.0, "w": 0.001}
    assert load_preset("pta", "paper", "my_photos") is None


def test_a_method_without_presets_has_none():
    assert not has_preset("mta", "paper")
    assert load_preset("mta", "paper", "dtd") is None


def test_an_unknown_preset_is_refused_with_the_nearest():
    with pytest.raises(InvalidParameter, match="no preset is called 'papper'; did you mean 'paper'"):
        require_preset("papper", ["pta", "mta"])
    with pytest.raises(InvalidParameter, match="there are none"):
        require_preset("paper", ["mta"])
