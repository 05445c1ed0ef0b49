"""The command as its users call it: its output and its exit code; in a process of its own where that matters."""

import csv
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from photos import FASHION
from PIL import Image

import pta
from pta import PTA, ZeroShotClassifier, list_adapters
from pta.cli import COMMANDS, load_command, module_of
from pta.cli.output import ProgressLines
from pta.data.features import load_features
from pta.data.orders import dirichlet
from pta.data.views import confident_mean
from pta.models import EmbeddedEncoder


@pytest.fixture
def evaluate(pta, pets):
    """`pta eval` on a feature file, which succeeds: its records, and what it prints beside them."""

    def evaluate(*options, features=pets):
        done = pta("eval", "--features", features, *options, "--json", "records.json", "--replace")
        assert done.returncode == 0, done.stderr
        return json.loads(Path("records.json").read_text()), done

    return evaluate


def arrays_of(path):
    """The arrays of an npz file."""
    with np.load(path) as file:
        return dict(file)


def rows_of(path):
    """The rows of a CSV file."""
    with path.open() as file:
        return list(csv.DictReader(file))


def columns(path, *names):
    """Columns of whole numbers of a file of predictions."""
    rows = rows_of(path)
    return [[int(row[name]) for row in rows] for name in names]


def test_prior_and_calibration_are_given_to_every_method_unless_it_is_set_otherwise(evaluate):
    options = ("--method", "clip", "--method", "tda", "--prior", "local", "--calibration", "matched")
    clip, tda = (record["params"] for record in evaluate(*options, "--set", "tda.prior=none")[0])
    assert (clip["prior"], clip["calibration"]) == ("local", "matched")
    assert (tda["prior"], tda["calibration"]) == ("none", "matched")


def test_eval_prints_a_table_and_writes_records_and_predictions(evaluate, pets, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    options = ("--method", "clip", "--method", "pta", "--seed", 1, "--seed", 2, "--set", "pta.h=50")
    records, done = evaluate(*options, "--predictions", tmp_path / "predictions")
    shown = ("accuracy", "gain over zero-shot", "mean per class", "worst class", "calibration error", "(raw ", "state")
    assert all(word in done.stdout for word in ("clip", "pta", "±", "samples/s", *shown))

    keys = {"dataset", "method", "params", "seed", "stream", "n", "accuracy", "zero_shot_accuracy", "seconds"}
    keys |= {"state_bytes", "calibration_error", "class_accuracies", "worst_class", "fixed", "broken", "online"}
    keys |= {"mean_per_class", "raw_calibration_error", "samples", "labels", "seen", "right", "remarks"}
    made = [(record["method"], record["seed"]) for record in records]
    assert made == [("clip", 1), ("clip", 2), ("pta", 1), ("pta", 2)]
    assert all(set(record) == keys for record in records)
    assert records[2]["params"]["h"] == 50

    data = arrays_of(pets)
    order = np.random.default_rng(2).permutation(300)
    labels = data["labels"][order]
    classifier = ZeroShotClassifier(data["text_features"], data["classnames"])
    expected = PTA(classifier, h=50.0).step(data["image_features"][order]).argmax(dim=1).tolist()
    found = columns(tmp_path / "predictions" / "pta-2.csv", "index", "label", "prediction")
    assert found == [order.tolist(), labels.tolist(), expected]
    rows = rows_of(tmp_path / "predictions" / "pta-2.csv")
    names = data["classnames"].tolist()
    assert [row["true_class"] for row in rows] == [names[label] for label in labels]
    assert [row["predicted_class"] for row in rows] == [names[label] for label in expected]
    assert all(0 < float(row["probability"]) <= 1 for row in rows)
    assert records[3]["accuracy"] == pytest.approx(100 * np.mean(expected == labels))


def test_a_stream_that_is_not_iid_is_run_in_batches_as_asked(evaluate, pets, tmp_path):
    options = ("--stream", "dirichlet", "--gamma", "0.01", "--drop-last", "--lookahead")
    (clip, ours), _ = evaluate(*options, "--predictions", tmp_path)
    kind = {"kind": "dirichlet", "gamma": 0.01, "batch": 128, "drop_last": True, "lookahead": True}
    assert clip["stream"] == ours["stream"] == kind
    assert clip["n"] == ours["n"] == 256
    assert evaluate(*options, "--method", "onzeta")[0][0]["params"]["length"] == 256
    assert clip["accuracy"] == clip["zero_shot_accuracy"] == ours["zero_shot_accuracy"]

    data = arrays_of(pets)
    order = dirichlet(data["labels"], 0.01, seed=1)[:256]
    adapter, expected = PTA(ZeroShotClassifier(data["text_features"], data["classnames"])), []
    for start in (0, 128):
        batch = data["image_features"][order[start : start + 128]]
        adapter.step(batch)
        expected += adapter.predict(batch).argmax(dim=1).tolist()
    assert columns(tmp_path / "pta-1.csv", "index", "prediction") == [order.tolist(), expected]


def test_json_to_stdout_is_nothing_but_json(pta, pets):
    done = pta("eval", "--features", pets, "--json", "-")
    assert [record["method"] for record in json.loads(done.stdout)] == ["clip", "pta"]
    assert [record["method"] for record in json.loads(pta("methods", "--json", "-").stdout)] == list_adapters()
    listed = pta("methods").stdout
    assert all(word in listed for word in ("clip", "pta", "features", "h=20.0", "w=0.01", "min_probability"))


def test_all_methods_are_those_that_the_file_has_everything_for(evaluate):
    records, done = evaluate("--method", "all")
    tuned = {"difftpt", "difftpt-augmented", "histpt", "tpt"}
    left_out = {"boostadapter", "etta", "gs-bias", "mta", "point-cache", "tps", "zero", "tca"} | tuned
    assert {record["method"] for record in records} == set(list_adapters()) - left_out
    assert done.stderr.count(": skipping ") == len(left_out)
    missing = "mta needs views, which are missing; make them with pta extract --views 64"
    assert f"pets: skipping mta: {missing}" in done.stderr
    assert "make them with pta extract --prompts, or choose prompts=one" in done.stderr
    assert "pets: skipping tca: tca needs the image tower of a model; give it" in done.stderr


@pytest.mark.parametrize(
    ("options", "value", "told"),
    [
        (("--preset", "paper/caltech101"), 50.0, ""),
        (("--preset", "paper/caltech101", "--set", "pta.h=7"), 7.0, ""),  # which comes on top
        (
            ("--method", "tda", "--preset", "paper"),
            20.0,
            "pta: no preset 'paper' for pets and pta, tda: defaults are used "
            "(--preset paper/DATASET takes the values of another)\n",
        ),
    ],
)
def test_a_preset_gives_the_values_of_a_dataset_or_the_defaults_and_one_line(evaluate, options, value, told):
    records, done = evaluate("--method", "pta", *options)
    assert (records[0]["params"]["h"], done.stderr) == (value, told)


def test_views_are_averaged_where_there_are_some(evaluate, pets, tmp_path):
    with np.load(pets) as arrays:
        given = dict(arrays)
    clean = given["text_features"][given["labels"]][:, None]
    noisy = clean + 3 * np.random.default_rng(2).standard_normal((300, 20, 16))
    np.savez(tmp_path / "pets.npz", **given, view_features=np.concatenate([clean, noisy], axis=1))
    (record,), _ = evaluate("--method", "clip", "--views", features=tmp_path / "pets.npz")
    data = load_features(tmp_path / "pets.npz")
    expected = confident_mean(data.samples, data.classifier)
    right = data.classifier.logits(expected.features).argmax(dim=1).numpy() == data.labels
    assert record["dataset"] == "pets, views"
    assert record["accuracy"] == pytest.approx(100 * right.mean())


def test_without_labels_there_are_predictions_but_no_accuracy(evaluate, pets, tmp_path):
    arrays = arrays_of(pets)
    del arrays["labels"]
    np.savez(tmp_path / "wild.npz", **arrays)
    records, done = evaluate("--predictions", tmp_path / "p", features=tmp_path / "wild.npz")
    assert "no labels" in done.stdout
    assert records[0]["accuracy"] is None
    assert rows_of(tmp_path / "p" / "pta-1.csv")[0]["label"] == ""


EVAL = ("eval", "--features", "PETS")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["eval"], "Missing option '--features'"),
        (["eval", "--features", "nothing.npz"], "no such feature file: nothing.npz"),
        ([*EVAL, "--method", "ptaa"], "no method is called 'ptaa'; did you mean 'pta'?"),
        ([*EVAL, "--set", "pta.hh=1"], "pta has no parameter 'hh'; did you mean 'h'?"),
        ([*EVAL, "--set", "pta.h=-1"], "h must be a number from"),
        ([*EVAL, "--prior", "locla"], "did you mean 'local'?"),
        ([*EVAL, "--method", "transclip", "--prior", "local"], "transclip has no parameter 'prior'"),
        ([*EVAL, "--method", "transclip", "--calibration", "matched"], "use calibration="),
        ([*EVAL, "--set", "pta.fusion=logit"], "did you mean 'logits'?"),
        ([*EVAL, "--set", "h=1"], "expected METHOD.NAME=VALUE"),
        ([*EVAL, "--method", "clip", "--set", "pta.h=1"], "pta is not among the methods"),
        ([*EVAL, "--features", "PETS"], "two feature files are called pets"),
        ([*EVAL, "--json", "no/such/folder/o.json"], "does not exist"),
        ([*EVAL, "--predictions", "PETS"], "cannot make the folder"),
        ([*EVAL, "--seed", "-1"], "'--seed'"),
        ([*EVAL, "--batch", "0"], "'--batch'"),
        ([*EVAL, "--gamma", "0.1"], "gamma is a parameter of the stream dirichlet"),
        ([*EVAL, "--drop-last", "--batch", "301"], "less than one batch of 301"),
        ([*EVAL, "--preset", "papper"], "no preset is called 'papper'; did you mean 'paper'"),
        (
            [*EVAL, "--preset", "paper/caltech"],
            "the preset 'paper' has no values for the dataset 'caltech'; did you mean 'caltech101'?",
        ),
        (
            [*EVAL, "--method", "zero"],
            "pets: zero needs views, which are missing; make them with pta extract --views 64",
        ),
        ([*EVAL, "--views"], "pta extract --views"),
        ([*EVAL, "--method", "mca", "--preset", "paper"], "no method is called 'mca'"),
        (["evaluate"], "No such command 'evaluate'. Did you mean 'eval'?"),
        (["demo", "--shift", "blurr"], "did you mean 'blur'?"),
        (["demo", "--severity", "6"], "severity"),
        (["predict", "photos", "--decode-memory", "inf"], "'--decode-memory'"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(pta, pets, arguments, complaint):
    done = pta(*(str(pets) if argument == "PETS" else argument for argument in arguments))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr


def test_a_defect_is_exit_code_1(commands, tmp_path):
    defect = "from pta.data import catalogue; catalogue.catalogue = None"
    commands.start("datasets", folder=tmp_path, first=defect, to_the_end=True)
    assert commands.wait() == 1
    assert "Traceback" in commands.stderr.read()


@pytest.mark.parametrize(
    ("options", "printed"), [(["--version"], f"pta {pta.__version__}\n"), (["--help"], "Usage"), ([], "Usage")]
)
def test_a_process_that_needs_no_torch_loads_none(options, printed):
    note = "import atexit, sys; atexit.register(lambda: print('loaded:', {'torch', 'numpy'} & set(sys.modules)))"
    code = f"{note}; import pta, runpy; pta.errors; sys.argv[1:] = {options}; runpy.run_module('pta', None, '__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed in done.stdout
    assert done.stdout.endswith("loaded: set()\n"), done.stdout + done.stderr


@pytest.mark.parametrize("call", ["--version", "datasets"])  # printed at the end, and while it runs
def test_what_cannot_be_printed_is_one_line(commands, tmp_path, call):
    with Path("/dev/full").open("w") as full:
        commands.start(call, folder=tmp_path, stdout=full, to_the_end=True)
    assert commands.wait() == 1
    said = commands.stderr.read()
    assert said.endswith("cannot be written: no space left on device\n")
    assert said.count("\n") == 1


def test_no_command_shows_the_help_and_exits_with_2(pta):
    done = pta()
    assert done.returncode == 2
    assert done.stdout.strip() == pta("--help").stdout.strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_listed_help_is_the_first_line_of_the_commands_own(name):
    assert load_command(name).help.splitlines()[0] == COMMANDS[name]
    assert (import_module(f"pta.cli.{module_of(name)}").__doc__ or "").startswith(f"`pta {name}`")


def test_every_public_name_is_found():
    assert {"PTA", "Samples", "compile", "create_adapter"} <= set(pta.__all__) <= set(dir(pta))
    assert all(getattr(pta, name) is not None for name in pta.__all__)
    namespace = {}
    exec("from pta import *", namespace)
    assert namespace["PTA"] is PTA
    assert pta.methods.PTA is PTA
    with pytest.raises(AttributeError, match="no attribute 'PTTA'"):
        _ = pta.PTTA


def test_a_model_that_did_not_make_the_features_is_refused(pta, tmp_path):
    encoder = EmbeddedEncoder.load()
    pixels = np.stack([encoder.preprocess.pixels(Image.fromarray(image)) for image in FASHION.images[:12]])
    features = encoder.encode(torch.from_numpy(pixels)).numpy()
    texts = encoder.encode_texts([f"a {name}." for name in FASHION.class_names]).numpy()
    about = {"text_features": texts, "classnames": np.array(FASHION.class_names), "pixels": pixels}
    np.savez(tmp_path / "own.npz", image_features=features, **about)
    np.savez(tmp_path / "other.npz", image_features=np.roll(features, 1, axis=1), **about)
    tca = ("--method", "tca", "--model", "embedded")
    assert pta("eval", "--features", tmp_path / "own.npz", *tca).returncode == 0
    done = pta("eval", "--features", tmp_path / "other.npz", *tca)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "other: this model gives other features for the file's pixels" in done.stderr


def test_without_a_terminal_long_work_is_told_every_10_percent_but_at_most_every_30_seconds(capsys):
    now = 0.0
    with ProgressLines(clock=lambda: now, disable=True) as bar:
        known, unknown = bar.add_task("known", total=1000), bar.add_task("unknown", total=None)
        for step in range(1, 1001):
            now = 1.0 * step
            bar.update(known, completed=step)
        for _ in range(60):
            now += 1
            bar.advance(unknown)
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["pta: known: 30 of 1,000 (3 %)", "pta: known: 100 of 1,000 (10 %)"]
    assert len(said) == 13
    assert said[10:] == ["pta: known: 1,000 of 1,000 (100 %)", "pta: unknown: 30", "pta: unknown: 60"]


def test_without_a_terminal_slow_work_is_told_every_5_minutes(capsys):
    now = 0.0
    with ProgressLines(clock=lambda: now, disable=True) as bar:
        task = bar.add_task("slow", total=100)
        for second in range(1000):
            now = 1.0 * second
            bar.update(task, completed=1)
    assert capsys.readouterr().err == 4 * "pta: slow: 1 of 100 (1 %)\n"


def test_without_a_terminal_short_work_is_silent(capsys):
    with ProgressLines(disable=True) as bar:
        assert list(bar.track(range(100), description="short")) == list(range(100))
    assert capsys.readouterr().err == ""
