"""What is wrong with a command line is said before a model is loaded, which takes long or a download."""

import json
import re
import socket
from pathlib import Path

import numpy as np
import pytest
from miniatures import build
from photos import FASHION
from PIL import Image

import pta
from pta.cli import COMMANDS

NO_MODEL = (
    "audit",
    "compare",
    "sweep",
    "methods",
    "monitor",
    "stream",
    "journal",
    "corrupt-points",
    "datasets",
)  # commands without one


@pytest.fixture
def unloadable(monkeypatch):
    """Every way to a model fails the test."""

    def load(*name):
        pytest.fail(f"a model is loaded: {name}")

    monkeypatch.setattr("pta.models.load._load", load)
    monkeypatch.setattr("pta.models.packaged.embedded.PackagedEncoder.read", load)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Everything that a good command line needs, and things that are wrong."""
    folder = tmp_path_factory.mktemp("place")
    for name in ("coat", "bag"):
        (folder / "photos" / name).mkdir(parents=True)
        Image.fromarray(FASHION.images[0]).save(folder / "photos" / name / "1.png")
    (folder / "empty").mkdir()
    build("dtd", folder / "data")
    (folder / "classes.txt").write_text("coat\nbag\n")
    (folder / "other.txt").write_text("coat\nhat\n")
    (folder / "few.json").write_text(json.dumps({"coat": ["It is warm."]}))
    (folder / "rows.csv").write_text(
        "path,label,probability,zero_shot_label,zero_shot_probability,entropy\na.png,a,1,a,1,0\n"
    )
    (folder / "token").write_text("short")
    pta.Classifier("embedded", ["coat", "bag"], method="pta", cache=None).save(folder / "old.safetensors")
    rng = np.random.default_rng(1)
    features = {"image_features": rng.normal(size=(4, 8)), "text_features": np.eye(2, 8), "labels": [0, 1] * 2}
    np.savez(folder / "labelled.npz", **features, classnames=["coat", "bag"])
    (folder / "answers").mkdir()
    (folder / "answers" / "tpt-1.csv").write_text("")
    return folder


PREDICT = "predict photos --classes classes.txt"
EXTRACT = "extract photos --classes classes.txt --out x.safetensors"
SERVE = "serve --classes classes.txt --data state --port 0"
WATCH = "watch camera:0 --classes coat,bag --model hf:x"
VERIFY = "verify hf:x --data data"
ADD = "state add-class old.safetensors hat --model hf:x"
CLUSTER = "predict photos --classes classes.txt --cluster local --out labels"
REPRODUCE = "reproduce table1 --data ."
TRIAL = "trial photos --classes classes.txt"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        # names, devices and precisions of every command that loads a model
        *(
            (f"{line} {option}", answer)
            for line in (PREDICT, EXTRACT, SERVE, VERIFY, TRIAL)
            for option, answer in {"--device gpu": "unknown device 'gpu'", "--dtype fp16": "mean 'float16'"}.items()
        ),
        *(
            (f"{line} --model gpt", "no model is called 'gpt'")
            for line in (PREDICT, EXTRACT, SERVE, ADD, CLUSTER, TRIAL)
        ),
        ("verify gpt --data .", "no model is called 'gpt'"),
        # class names, templates and descriptions
        *(
            (f"{line} {option}", answer)
            for line in (PREDICT, EXTRACT, SERVE, CLUSTER)
            for option, answer in {
                "--classes clases.txt": "no such file of class names: clases.txt",
                "--classes coat,coat": "more than once",
                "--templates photo": "no templates are called 'photo'",
                "--templates none.txt": "no such template file",
                "--descriptions none.json": "no such description file: none.json",
                "--descriptions few.json": "the descriptions have no class 'bag'",
            }.items()
        ),
        (f"{ADD} --templates photo", "no templates are called 'photo'"),
        (f"{ADD} --descriptions few.json", "the descriptions have no class 'bag'"),
        # methods and their parameters
        *(
            (f"{line} {option}", answer)
            for line in (PREDICT, SERVE, CLUSTER)
            for option, answer in {
                "--method ptaa": "did you mean 'pta'",
                "--set wpta.hh=3": "wpta has no parameter 'hh'",
                "--set wpta.ridge=-3": "ridge must be",
                "--set tda.shots=3": "the method is wpta; give --method tda",
                "--prior globl": "did you mean 'local'",
                "--calibration online": "calibration='online' is not a choice",
            }.items()
        ),
        # paths
        ("predict fotos --classes classes.txt", "no such file or folder: 'fotos'"),
        ("predict empty --classes classes.txt", "no images in empty"),
        ("predict party.mp4 --classes classes.txt", "no such file: 'party.mp4'"),
        ("predict photos - --classes classes.txt", "cannot be mixed"),
        (f"{PREDICT} --frames", "give - as the path"),
        (TRIAL, "2 labels are too few"),
        (f"{TRIAL} --classes clases.txt", "no such file of class names: clases.txt"),
        (f"{TRIAL} --json none/x.json", "the folder none does not exist"),
        ("trial empty", "empty holds no images"),
        ("extract fotos --out x.safetensors", "'fotos' is neither a folder nor a known dataset"),
        ("extract empty --out x.safetensors", "empty holds no images"),
        ("extract dtd --out x.safetensors", "--data ROOT"),
        ("extract dtd --data none --out x.safetensors", "dtd: "),
        ("extract photos --classes other.txt --out x.safetensors", "bag"),
        ("predict fotos --classes classes.txt --cluster local --out labels", "no such source: fotos"),
        ("extract fotos --classes classes.txt --cluster local --out features", "no such source: fotos"),
        ("verify hf:x --data none", "--data none: no such folder"),
        (f"{REPRODUCE} --data none", "--data none: no such folder"),
        # outputs
        (f"{PREDICT} --out rows.txt", "must end in .jsonl or .csv"),
        (f"{PREDICT} --out rows.csv", "rows.csv exists"),
        (f"{PREDICT} --out none/rows.csv", "the folder none does not exist"),
        (f"{PREDICT} --out new.csv --csv", "--csv is for standard output"),
        (f"{PREDICT} --append", "--append adds to a file"),
        (f"{CLUSTER} --out labels.csv", "--out labels.csv: with --cluster it is a folder of blocks; use --out labels"),
        (f"{CLUSTER} --out rows.csv/labels", "cannot make the folder rows.csv/labels"),
        ("extract photos --out x.npz", "ends in .safetensors"),
        ("extract photos --out none/x.safetensors", "the folder none does not exist"),
        ("extract photos --out old.safetensors", "old.safetensors exists and holds no feature file"),
        (f"{EXTRACT} --json none/x.json", "the folder none does not exist"),
        ("extract photos --cluster local --out x.safetensors", "it is a folder of blocks; use --out x$"),
        (f"{VERIFY} --json none/x.json", "the folder none does not exist"),
        (f"{VERIFY} --features rows.csv", "cannot make the folder rows.csv"),
        (f"{REPRODUCE} --out rows.csv", "cannot make the folder rows.csv"),
        (f"{ADD} --out rows.csv", "rows.csv exists"),
        ("demo --report none/x.html", "the folder none does not exist"),
        ("demo --json none/x.json", "the folder none does not exist"),
        ("sweep --features labelled.npz --set pta.h=1,2 --results rows.csv", "cannot make the folder rows.csv"),
        # states
        (f"{PREDICT} --state rows.csv", "cannot be read as a state file"),
        (f"{PREDICT} --state none/new.safetensors", "the folder none does not exist"),
        (f"{PREDICT} --state old.safetensors --method wpta", "was learned by pta, not by wpta"),
        (f"{PREDICT} --state old.safetensors --set pta.h=3", "has parameters of its own"),
        (f"{PREDICT} --state old.safetensors --classes other.txt", "other classes: "),
        (f"{PREDICT} --state new.safetensors --freeze", "needs a state, but there is no such file"),
        (f"{PREDICT} --state old.safetensors --resume --out new.csv", "does not record a stream"),
        (f"{PREDICT} --state new.safetensors --resume --out rows.csv", "rows.csv holds rows, but there is no"),
        (f"{CLUSTER} --state old.safetensors --method tda", "was learned by pta, not by tda"),
        (f"{CLUSTER} --state old.safetensors --classes other.txt", "other classes: "),
        ("state add-class old.safetensors bag --model hf:x", "there is a class 'bag' already"),
        ("state add-class none.safetensors hat --model hf:x", "no such state file"),
        ("state add-class rows.csv hat --model hf:x", "cannot be read as a state file"),
        ("state show none.safetensors --model hf:x", "no such state file"),
        # the rest of each command
        (f"{PREDICT} --method mta --views 1", "2 to"),
        (f"{PREDICT} --method mta --fast-decode", "full picture"),
        (f"{PREDICT} --raw-probability --reject-below 0.5", "reject_below needs calibrated probabilities"),
        (f"{PREDICT} --reject-holds nan", "--reject-holds"),
        (f"{PREDICT} --reject-holds 0.5 --method stata", "does not answer sample by sample"),
        (f"{PREDICT} --reject-holds 0.5 --freeze --state old.safetensors", "there is nothing to hold"),
        (f"{CLUSTER} --reject-holds 0.5", "--reject-holds"),
        (f"{SERVE} --reject-holds nan", "--reject-holds"),
        (f"{SERVE} --reject-below nan", "--reject-below"),
        (f"{PREDICT} --workers 5000", "workers must be"),
        (f"{PREDICT} --learn-labels none.csv", "none.csv"),
        (f"{PREDICT} --learn-labels rows.csv", "rows.csv"),
        (f"{PREDICT} --learn-labels rows.csv --method dota", "dota does not learn labels"),
        (
            f"{PREDICT} --learn-labels rows.csv --freeze --state old.safetensors",
            "--learn-labels learns, and --freeze does",
        ),
        (f"{CLUSTER} --shadow", "--shadow"),
        (f"{EXTRACT} --views 1", "2 to"),
        (f"{EXTRACT} --views 8 --pixels", "together with views"),
        (f"{EXTRACT} --views-from none", "none"),
        (f"{EXTRACT} --generated 3", "--generated needs --views-from"),
        (f"{VERIFY} --templates photo", "no published accuracies with templates photo"),
        *((f"{line} --decode gpu", "--decode gpu needs") for line in (PREDICT, EXTRACT, VERIFY, REPRODUCE)),
        *(
            (f"{line} --runtime onnx --dtype float16", "the runtime onnx runs in float32, not in float16")
            for line in (PREDICT, EXTRACT, VERIFY, SERVE, TRIAL)
        ),
        *((f"{line} --runtime onx", "onx") for line in (PREDICT, EXTRACT, VERIFY, SERVE, TRIAL)),
        (f"{CLUSTER} --runtime onnx", "--runtime onnx cannot be used with --cluster"),
        ("verify hf:x --data empty", "no dataset could be measured in empty"),
        ("verify hf:x --data empty --architecture RN50 --dataset dtd", "no dataset could be measured in empty"),
        (f"{VERIFY} --dataset dtdd", "did you mean 'dtd'"),
        (f"{VERIFY} --templates dpe", "needs --descriptions FOLDER"),
        (f"{VERIFY} --descriptions none", "--descriptions none: no such folder"),
        (f"{VERIFY} --architecture ViT", "no published accuracies of ViT"),
        (f"{VERIFY} --architecture RN50 --dataset dtdd", "did you mean 'dtd'"),
        (f"{VERIFY} --workers 5000", "workers must be"),
        (f"{SERVE} --name a/b", "--name a/b"),
        (f"{SERVE} --token-file none", "no such token file: none"),
        (f"{SERVE} --token-file token", "a token is one line of at least 16"),
        (f"{SERVE} --host 203.0.113.1", "cannot listen on 203.0.113.1"),
        ("serve --classes classes.txt --data rows.csv", "cannot make the folder rows.csv"),
        ("serve --classes classes.txt", "--data is required"),
        ("serve --data state", "--classes is required"),
        ("serve --classes classes.txt --no-journal", "a new token is shown on a terminal only"),
        ("reproduce tabel1 --data .", "tabel1"),
        ("reproduce table1", "nothing to run on"),
        (f"{REPRODUCE} --device gpu", "unknown device 'gpu'"),
        (f"{REPRODUCE} --dtype fp16", "mean 'float16'"),
        (f"{REPRODUCE} --model gpt", "no model is called 'gpt'"),
        (f"{REPRODUCE} --descriptions none", "--descriptions none: no such folder"),
        (f"{REPRODUCE} --features none.npz", "none.npz"),
        ("demo --severity 9", "severity"),
        ("demo --shift fog", "fog"),
        ("demo --source furniture", "--modality points"),
        ("demo --modality points --severity 9", "severity"),
        ("demo --modality points --source cats", "cats"),
        ("eval --features none.npz --method tpt --model hf:x", "no such feature file: none.npz"),
        ("eval --features labelled.npz --method tpt --model gpt", "no model is called 'gpt'"),
        (f"{WATCH} --out rows.txt", r"must end in \.jsonl or \.csv"),
        (f"{WATCH} --region gate=1,2,3", "a region is NAME=X,Y,W,H"),
        (f"{WATCH} --templates nothing", "no templates are called 'nothing'"),
        (f"{WATCH} --set pta.h=1", "the method is wpta"),
        (f"{WATCH} --mqtt http://host", "mqtt is an address like"),
        (f"{WATCH} --state classes.txt", "takes a folder"),
        (f"{WATCH} --state old --method tda --out classes.txt/rows.csv", "classes.txt"),
        ("eval --features labelled.npz --method tpt --model hf:x --set tpt.hh=1", "tpt has no parameter 'hh'"),
        ("eval --features labelled.npz --method tpt --model hf:x --prior local", "tpt has no parameter 'prior'"),
        ("eval --features labelled.npz --method tpt --model hf:x --device gpu", "unknown device 'gpu'"),
        ("eval --features labelled.npz --method tpt --model hf:x --json none/x.json", "the folder none does not"),
        ("eval --features labelled.npz --method tpt --model hf:x --predictions rows.csv", "cannot make the folder"),
        ("eval --features labelled.npz --method tpt --model hf:x --predictions answers", "tpt-1.csv exists"),
    ],
)
def test_a_mistake_is_refused_before_a_model_is_loaded(pta, place, unloadable, line, answer):
    before = sorted(place.rglob("*"))
    done = pta(*line.split(), cwd=place)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert re.search(answer, done.stderr.splitlines()[-1]), done.stderr
    assert sorted(path for path in place.rglob("*") if not path.name.endswith(".lock")) == before


def test_a_port_in_use_is_refused_before_a_model_is_loaded(pta, place, unloadable):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = pta(*SERVE.split()[:-1], taken.getsockname()[1], cwd=place)
    assert done.returncode == 2
    assert "cannot listen on 127.0.0.1" in done.stderr


@pytest.mark.parametrize(
    "line", [PREDICT, EXTRACT, WATCH, SERVE, VERIFY, ADD, REPRODUCE, "demo", "demo --modality points"]
)
def test_a_good_command_line_comes_to_the_model(pta, place, monkeypatch, line):
    """Otherwise the test above could pass without reaching it."""

    class Loading(Exception):
        format_message = "a model is loaded".__str__

    def load(*name):
        raise Loading

    monkeypatch.setattr("pta.models.load._load", load)
    monkeypatch.setattr("pta.models.packaged.embedded.PackagedEncoder.read", load)
    done = pta(*line.split(), cwd=place)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "pta: a model is loaded")


def test_every_command_that_loads_a_model_is_in_the_table():
    text = Path(__file__).read_text()
    assert all(re.search(rf'"{name} ', text) for name in COMMANDS if name not in NO_MODEL)
