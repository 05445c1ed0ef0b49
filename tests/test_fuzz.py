"""Every public function and file reader, on random and mutated input, succeeds or raises `PtaError` with one line.

`make test-fuzz` makes 20,000 calls. Here are some hundreds, and what makes them worth something.
"""

import importlib
import inspect
import pkgutil
from contextlib import nullcontext
from random import Random

import pytest
from fuzzing.calls import Scene, Target, require_valid
from fuzzing.not_called import NOT_CALLED
from fuzzing.targets import TARGETS, numbered_call

import pta
from pta.cli.commands import COMMANDS
from pta.methods import METHOD_CLASSES

SEED, CALLS, PARTS = 1, 320, 8
KEEPERS_OF_STATE = ("Adapter", "Classifier", "Samples", "Segment", "ZeroShotClassifier")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder for all calls, in which valid files are made once."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("part", range(PARTS))
def test_each_call_succeeds_or_raises_one_line(part, scratch):
    found = {number: numbered_call(SEED, number, scratch) for number in range(part, CALLS, PARTS)}
    complaints = [
        f"PTA_FUZZ_SEED={SEED} PTA_FUZZ_CALL={number} make test-fuzz\n{one}"
        for number, one in found.items()
        if one is not None
    ]
    assert not complaints, "\n\n".join(complaints)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_succeeds_with_valid_input(target: Target, scratch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_CACHE", str(tmp_path / "cache"))
    (scratch / "valid").mkdir(exist_ok=True)
    with pytest.raises(pta.PtaError) if target.always_refused else nullcontext():
        require_valid(target.call(Scene(Random(SEED), tmp_path, scratch / "valid", exact=True)))


def test_the_same_seed_and_number_make_the_same_call(tmp_path):
    def given(folder):
        (tmp_path / folder).mkdir()
        (tmp_path / "valid").mkdir(exist_ok=True)
        scene = Scene(Random("1/7"), tmp_path / folder, tmp_path / "valid")
        return [
            repr(scene.around(1.5)),
            repr(scene.odd("text")),
            scene.file("records.json").name,
            scene.random.random(),
        ]

    assert given("first") == given("second")


def _public() -> set[str]:
    """What packages list, the functions of all modules, the methods of what keeps a state, and the commands."""
    found = {f"pta:{name}" for name in pta.__all__} | {f"pta.cli:{name}" for name in COMMANDS}
    for module in (importlib.import_module(one.name) for one in pkgutil.walk_packages(pta.__path__, "pta.")):
        listed = [name for name in getattr(module, "__all__", ()) if _is_called(getattr(module, name))]
        own = [
            name
            for name, one in vars(module).items()
            if inspect.isfunction(inspect.unwrap(one)) and _is_of(one, module)
        ]
        found |= {f"{module.__name__}:{name}" for name in (*listed, *own)}
    for owner in KEEPERS_OF_STATE:
        found |= {f"pta:{owner}.{name}" for name, one in vars(getattr(pta, owner)).items() if inspect.isroutine(one)}
    return {name for name in found if not name.rpartition(":")[2].rpartition(".")[2].startswith("_")}


def _is_called(one):
    return inspect.isclass(one) or inspect.isroutine(one)


def _is_of(one, module):
    return getattr(one, "__module__", "") == module.__name__


def _identity(name: str) -> str:
    """Where something is defined, whatever it is imported from."""
    if not name.startswith("pta") or name.startswith("pta.cli:"):
        return name
    found = pkgutil.resolve_name(name)
    return f"{found.__module__}:{found.__qualname__}" if hasattr(found, "__qualname__") else name


def test_every_public_function_is_a_target():
    covered = {_identity(name) for target in TARGETS for name in target.covers}
    covered |= {_identity(f"pta:{name}") for name, method in METHOD_CLASSES.items() if f"adapter {method}" in covered}
    excepted = {_identity(name) for name in NOT_CALLED if ":" in name}
    places = tuple(f"{name}{sign}" for name in NOT_CALLED if ":" not in name for sign in ".:")
    missing = {name for name in {*map(_identity, _public())} - covered - excepted if not name.startswith(places)}
    assert not missing, (
        f"call them in tests/fuzzing/targets.py, or say why not in not_called.py: {', '.join(sorted(missing))}"
    )


def test_nothing_is_excepted_that_does_not_exist():
    for name in NOT_CALLED:
        pkgutil.resolve_name(name)


def test_every_method_has_a_session():
    assert {f"adapter {name}" for name in pta.list_adapters()} <= {name for one in TARGETS for name in one.covers}
