"""Presets are data: they name real datasets and real parameters, and what they lack is said, not guessed."""

import json
from importlib import resources

import pytest
import torch

from pta import ZeroShotClassifier, create_adapter, list_adapters
from pta.data.catalogue import catalogue
from pta.methods import adapter_class
from pta.methods.registry import depends_on_dataset, load_preset, preset_names

FILES = sorted((resources.files("pta") / "assets" / "presets").iterdir(), key=lambda file: file.name)
METHODS = [file.name.removesuffix(".json") for file in FILES]


def test_every_file_belongs_to_a_method_and_says_where_it_comes_from():
    assert set(METHODS) == {
        "adapt",
        "boostadapter",
        "dmn",
        "dota",
        "dpe",
        "etta",
        "gs-bias",
        "point-cache",
        "pta",
        "tca",
        "tda",
        "tps",
    }
    assert set(METHODS) < set(list_adapters())
    assert all("_origin" in json.loads(file.read_text()) for file in FILES)


@pytest.mark.parametrize("method", METHODS)
def test_every_value_is_for_a_known_dataset_and_parameter(method):
    content = json.loads((resources.files("pta") / "assets" / "presets" / f"{method}.json").read_text())
    for name, by_dataset in content.items():
        if name == "_origin":
            continue
        for dataset, values in by_dataset.items():
            assert dataset == "*" or dataset in catalogue()
            assert set(values) <= set(adapter_class(method).declared)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"tca"}))
def test_every_preset_makes_its_method(method):
    texts = torch.eye(2)
    classifier = ZeroShotClassifier(texts, ["cat", "dog"], prompt_features=texts[:, None].expand(2, 5, 2))
    for name in preset_names():
        for dataset in catalogue():
            values = load_preset(method, name, dataset)
            if values is not None:
                adapter = create_adapter(method, classifier, **values)
                assert {key: adapter.parameters[key] for key in values} == values


# By dataset: h of PTA; α₊, β₊ of TDA and BoostAdapter; δ of BoostAdapter; slots, layer temperature, α, β of TCA;
# ε, η, ρ of DOTA; temperature of ADAPT. From the configuration files of the released programs; "-" where there is none.
PUBLISHED = """
caltech101      50 5,5        2 3,1,7,6    .002,.3,.02  100
dtd             20 2,3        0 3,1,2,6    1e-4,.3,.02  60
eurosat         20 4,8        0 2,5,8,7    1e-4,3,.05   100
fgvc_aircraft   20 2,2        2 3,.02,2,2  1e-4,.2,.01  100
food101         20 1,1        3 3,.01,2,5  4e-5,.1,.01  100
oxford_flowers  20 1,5        0 3,.01,7,7  1e-4,.2,.02  60
oxford_pets     20 2,7        0 3,5.5,2,6  1e-4,.3,.02  100
stanford_cars   20 1,7        3 3,.1,1.5,8 1e-4,.3,.01  60
sun397          20 2,3        1 3,.01,4,3  1e-4,.2,.01  60
ucf101          20 3,8        0 3,.01,6,8  1e-4,.4,.02  70
imagenet        20 2,5        - 3,.1,3,5   1e-4,.2,.005 20
imagenet_a      -  2,5        3 3,.01,3,5  1e-4,.5,.02  40
imagenet_v2     -  1,8        1 3,.1,4,9   1e-4,.1,.01  30
imagenet_r      -  1,8        3 3,.1,3,8   1e-4,.3,.0025 100
imagenet_sketch -  2.363,7.45 1 3,.1,4,8   1e-4,.8,.03  20
imagenet_c      -  -          - -          -            10
modelnet_c      20 -          - -          -            -
sonn_c          20 -          - -          -            -
"""
COLUMNS = {
    "pta": [("h",)],
    "tda": [(), ("positive_alpha", "positive_beta")],
    "boostadapter": [(), ("positive_alpha", "positive_beta"), ("delta",)],
    "tca": [(), (), (), ("slots", "layer_temperature", "alpha", "beta")],
    "dota": [(), (), (), (), ("epsilon", "eta", "rho")],
    "adapt": [(), (), (), (), (), ("temperature",)],
}


@pytest.mark.parametrize("method", COLUMNS)
def test_the_values_are_those_of_the_released_configurations(method):
    for line in PUBLISHED.strip().splitlines():
        dataset, *cells = line.split()
        expected = {}
        for names, cell in zip(COLUMNS[method], cells, strict=False):
            if names and cell != "-":
                expected |= dict(zip(names, map(float, cell.split(",")), strict=True))
        found = load_preset(method, "paper", dataset) or {}
        assert {name: value for name, value in found.items() if name != "share"} == expected


def test_what_a_preset_holds_for_a_dataset():
    assert load_preset("boostadapter", "paper", "imagenet")["share"] == 0.0
    assert load_preset("adapt", "paper", "imagenet_c/fog/5") == load_preset("adapt", "paper", "imagenet_c") is not None
    assert load_preset("pta", "non-iid", "my_photos") == {"h": 1000.0, "w": 0.001}  # for every dataset
    assert load_preset("pta", "paper", "my_photos") is None


def test_methods_whose_values_are_not_known_are_not_passed_off_as_having_none():
    assert [depends_on_dataset(method) for method in ("mta", "adapt-transductive", "combined")] == [False, True, True]
    assert load_preset("mta", "paper", "dtd") is load_preset("combined", "paper", "dtd") is None
