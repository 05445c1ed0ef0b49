"""The call of a number: seed and number decide the target and all of its input."""

import shutil
from pathlib import Path
from random import Random

from fuzzing.calls import Scene, Violation, make_call
from fuzzing.targets import TARGETS, Target

_WEIGHTS = [target.weight for target in TARGETS]


def target_of(seed: int, number: int) -> tuple[Target, Random]:
    """What a call is of, and the random numbers for its input."""
    random = Random(f"{seed}/{number}")
    return random.choices(TARGETS, _WEIGHTS)[0], random


def numbered_call(seed: int, number: int, scratch: Path) -> Violation | None:
    """Make the call of this number; what it violates, if anything. Valid files are kept in the scratch folder."""
    target, random = target_of(seed, number)
    folder, files = scratch / f"call-{number}", scratch / "valid"
    folder.mkdir()
    files.mkdir(exist_ok=True)
    try:
        return make_call(target, Scene(random, folder, files))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
