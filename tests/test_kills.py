"""Real commands on real files are killed at random moments, and in the end leave what an undisturbed run leaves.

PTA_KILLS says how often `pta predict` is killed (200 times in `make test-kills`); `pta extract` 0.3 times as often.
"""

import os
import random
import signal

import pytest
from effort import repeated
from photos import write_classes, write_photos

from pta.door.files import load_tensors

KILLS = int(os.environ.get("PTA_KILLS", repeated(20)))
COUNT = 90
FIXED = ["photos", "--model", "embedded", "--device", "cpu", "--on-error", "skip"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kills")
    write_photos(folder / "photos", COUNT)
    sorted((folder / "photos").glob("*/*.jpg"))[40].write_bytes(b"no picture")
    write_classes(folder / "classes.txt")
    return folder


@pytest.fixture
def folders(place, request):
    """One for a run that is never interrupted, and one for a run that is killed."""
    folders = [place / request.node.name / kind for kind in ("whole", "killed")]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


@pytest.fixture
def run(commands, place):
    """Run a command, and kill it as soon as there is `enough`; says whether it was killed, and what it has said."""

    def run(*arguments, enough=lambda: False):
        commands.start(*arguments, folder=place)
        while commands.is_running(0.0005) and not enough():
            pass
        code, said = commands.kill(), commands.stderr.read()
        assert code in (0, -signal.SIGKILL), said
        return code != 0, said

    return run


def shards(folder):
    try:
        return len(list((folder / "f.safetensors.parts").iterdir()))
    except FileNotFoundError:
        return 0


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("method", "name", "share"),
    [
        ("pta", "rows.csv", 0.75),
        ("wpta", "rows.csv", 0.25),
        pytest.param("stata", "rows.jsonl", 0.25, marks=pytest.mark.extensive),
    ],
)
def test_a_killed_stream_ends_as_one_that_was_never_interrupted(run, folders, method, name, share):
    def predict(folder, *more):
        files = ["--state", folder / "state", "--out", folder / name]
        return ["predict", *FIXED, "--classes", "classes.txt", "--batch", 3, "--method", method, *files, *more]

    whole, folder = folders
    run(*predict(whole))
    rows, random_numbers = folder / name, random.Random(method)
    kills, written_again = round(KILLS * share), 0
    while kills:
        killed = True
        while killed and kills:
            size = random_numbers.randrange(1500) + (rows.stat().st_size if rows.exists() else 0)
            killed, said = run(
                *predict(folder, "--resume", "--save-every", random_numbers.choice([0, 0, 0.02, 30])),
                enough=lambda size=size: rows.exists() and rows.stat().st_size >= size,
            )
            kills -= killed
            written_again += "will be written again" in said
            assert not rows.exists() or contents(whole)[name].startswith(rows.read_bytes())
        run(*predict(folder, "--resume"))
        assert contents(folder) == contents(whole)
        assert load_tensors(folder / "state", kind="state")[1]["position"] == COUNT - 1  # one cannot be read
        for path in folder.iterdir():
            path.unlink()
    assert written_again or KILLS * share < 5  # that many kills hit such a moment


@pytest.mark.parametrize(
    ("views", "share"), [((), 0.25), pytest.param(("--views", "2"), 0.05, marks=pytest.mark.extensive)]
)
def test_a_killed_extraction_ends_in_the_bytes_of_one_that_was_never_interrupted(run, folders, views, share):
    def extract(folder, batch=5):
        return ["extract", *FIXED, "--shard", 7, "--out", folder / "f.safetensors", "--batch", batch, *views]

    whole, folder = folders
    run(*extract(whole))
    random_numbers, kills = random.Random(len(views)), round(KILLS * share)
    while kills:
        killed = True
        while killed and kills:
            count = random_numbers.randrange(1, 6) + shards(folder)
            killed, _ = run(*extract(folder), enough=lambda count=count: shards(folder) >= count)
            kills -= killed
        begun = any(folder.glob("*/*.safetensors"))
        run(*extract(folder, 64 if begun else 5))  # it goes on as it was begun
        assert contents(folder) == contents(whole)
        (folder / "f.safetensors").unlink()
