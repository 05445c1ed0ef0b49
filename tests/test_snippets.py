"""Every command and example in README.md and docs works as printed, with packaged models and pictures as stand-ins."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hf_models import write_hf_clip
from photos import FASHION, write_classes, write_photos
from snippets import commands, python_blocks, taken_for_granted

from pta.cli import COMMANDS, load_command
from pta.door.points.h5 import StoredClouds, write_h5

STAND_INS = {"hf:openai/clip-vit-base-patch16": "embedded", "MODEL": "embedded"}
NOT_RUN = {
    r"--data ROOT|verify |ROOT/": "needs datasets that are not distributed",
    r"ulip:|rotate.safetensors": "needs ULIP's weights",
    r"rtsp://|srt://|http://camera/": "needs a camera; tests/test_camera.py has some",
    **({} if find_spec("av") else {r"film\.mp4": "needs PyAV"}),
    r"^pta reproduce (?!--list)": "takes minutes; tests/test_reproduce.py runs it on less",
    r"--method (difftpt|all)|--views-from": "needs generated pictures, or takes minutes",
    r"^pta (serve|stream|journal) ": "needs a running service; tests/test_serve_document.py has one",
    r"^pta watch ": "needs a video and a broker; tests/test_camera_page.py has them",
    r"^pta audit ": "waits for a person; tests/test_audit.py and tests/test_audit_page.py have one",
    r"--cluster|--features features/": "needs Ray; tests/test_cluster_ray.py has one",
    r"^pta demo$": "tests/test_demo.py runs it",
    r"combined.base=mta|FILE-WITH-VIEWS": "needs a file with views; tests/test_evaluate.py runs it",
}
"""What cannot run in a test, by what is in the command, and why. Its options are checked all the same."""


def reason_not_to_run(command):
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, command.text)), None)


def write_film(folder):
    """A video of a hundred seconds, where PyAV is installed."""
    if find_spec("av"):
        from videos import fashion_frames, write_video

        write_video(folder / "film.mp4", fashion_frames(("bag", "shirt"), 100), rate=1)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A folder with everything that the commands name."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("PHOTOS", "photos", "labelled", "monday", "tuesday", "audit", "inbox"):
        write_photos(folder / name, 30 if name in ("PHOTOS", "photos", "labelled") else 6)
    write_classes(folder / "classes.txt")
    first = sorted((folder / "PHOTOS").rglob("*.*"))[0].relative_to(folder)
    (folder / "known.csv").write_text(f"path,label\n{first},{FASHION.class_names[0]}\n")
    rng = np.random.default_rng(1)
    for name in ("caltech101_test_sub.npz", "stanford_cars_val.npz", "FILE.npz"):
        anchors, labels = rng.standard_normal((4, 16)), rng.integers(4, size=300)
        noisy = anchors[labels] + 2.0 * rng.standard_normal((300, 16))
        np.savez(folder / name, image_features=noisy, text_features=anchors, labels=labels, classnames=list("abcd"))
    clouds = rng.standard_normal((3, 1024, 3))
    (folder / "SCANS").mkdir()
    for number, cloud in enumerate(clouds):
        np.save(folder / "SCANS" / f"{number}.npy", cloud)
    shutil.copy(folder / "FILE.npz", folder / "dtd.npz")
    write_film(folder)
    write_h5(folder / "mine.h5", StoredClouds(clouds.astype(np.float32), np.array([0, 1, 2])))
    return folder


@pytest.mark.parametrize("command", commands(), ids=str)
def test_every_option_that_is_shown_exists(command):
    for name, *arguments in command.calls:
        assert name in COMMANDS, name
        found = load_command(name)
        group = getattr(found, "commands", {})
        if arguments and arguments[0] in group:
            found = group[arguments[0]]
        known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        given = {word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)}
        assert given <= known | {"--help", "--version"}


PAGES = {page: [one for one in commands() if one.page == page] for page in sorted({one.page for one in commands()})}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.extensive) if page == "points.md" else page for page in PAGES]
)
def test_the_commands_of_a_page_run_one_after_the_other(page, reader, pta, monkeypatch):
    folder = shutil.copytree(reader, reader.parent / f"{reader.name}-{page}")
    monkeypatch.setenv("PTA_MODEL", "embedded")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    ran = 0
    for command in PAGES[page]:
        if reason_not_to_run(command):
            continue
        text = command.text.replace("/inbox", "inbox").replace("dtd.safetensors", "dtd.npz")
        for shown, real in STAND_INS.items():
            text = re.sub(rf"(?<!\S){re.escape(shown)}(?!\S)", real, text)
        if "|" in text:
            done = subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True)
        else:
            done = pta(*shlex.split(text)[1:], cwd=folder)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        ran += 1
    assert ran or all(map(reason_not_to_run, PAGES[page]))


# -- Python ---------------------------------------------------------------------------------------------------------

NOT_EXECUTED = {
    'device="cuda"': "needs a GPU; tests/test_program.py runs it",
    'push_to_hub("OWNER': "sends to the hub; tests/test_hub.py has one of its own",
    **({} if find_spec("av") else {"film.mp4": "needs PyAV"}),
    "127.0.0.1:8080": "needs a running service; tests/test_serve_document.py has one",
    '"linear.npz"': "needs an export; tests/test_export.py runs it without torch",
    '"head.onnx"': "needs an export; tests/test_export.py runs it without torch",
    '"camera.onnx"': "needs an export; tests/test_export.py runs it without torch",
}


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What examples take for granted."""
    monkeypatch.chdir(tmp_path)
    write_film(tmp_path)
    return taken_for_granted()


@pytest.mark.parametrize("example", python_blocks(), ids=str)
def test_an_example_runs(example, names, tmp_path):
    for words, why in NOT_EXECUTED.items():
        if words in example.text:
            pytest.skip(why)
    text = example.text.replace("hf:openai/clip-vit-base-patch16", "embedded")
    if "hf:/models/clip" in text:
        text = text.replace("/models/clip", str(write_hf_clip(tmp_path / "clip"))).replace("float16", "float32")
    exec(compile(text, str(example), "exec"), names)
