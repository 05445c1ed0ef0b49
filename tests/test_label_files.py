"""Files of labels, and the commands that read them: pta predict, also on a cluster, and pta eval."""

import csv
import json

import numpy as np
import pytest
from photos import FASHION, write_classes, write_photos

import pta
from pta.core.labels import NONE, UNKNOWN
from pta.data.features import load_features
from pta.data.label_file import LabelRow, labels_by_key, labels_of_paths, read_label_file
from pta.errors import PtaError
from pta.methods import create_adapter, load_adapter
from pta.models import load_encoder

NAMES = ("bag", "coat")


def written(folder, text):
    (folder / "labels.csv").write_text(text)
    return folder / "labels.csv"


# -- the file ---------------------------------------------------------------------------------------------------------


def test_rows_name_samples_by_path_id_or_sequence_and_may_have_other_columns(tmp_path):
    text = "\ufeffId,place,sequence,Label,answer,time\nx,2,17,coat,adapted,1.5\n'=y,,,none,,\nz,,18,,unknown,2\n"
    rows = read_label_file(written(tmp_path, text))
    assert rows == [LabelRow(2, "coat", id="x", place=2, sequence=17), LabelRow(3, "none", id="=y")]
    assert [row.key for row in rows] == ["x", "=y"]
    assert labels_by_key(tmp_path / "labels.csv", NAMES) == {"x": 1, "=y": NONE}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the first line must name label and path or id or sequence, found ''"),
        ("path\na.png\n", "the first line must name label and path or id or sequence"),
        ("label\ncoat\n", "the first line must name label and path or id or sequence"),
        ("path,label\na.png,\n", "has no label"),
        ("path,label\na.png,cat\n", "line 2 has the label 'cat'; did you mean 'coat'?"),
        ("path,label\n,coat\n", "line 2 names no sample (path, id, sequence)"),
        ("path,label\na.png,coat\na.png,bag\n", "line 3 gives a.png a second label; keep one of them"),
        ("sequence,label\n1.5,coat\n", "line 2 has the sequence '1.5', which is no whole number"),
        ("sequence,label\n7,coat\n", "line 2 names its sample by sequence number alone; a path is needed"),
        ('path,label\n"a.png,coat\n', "is not CSV"),
        ("path,label,label\na.png,coat,bag\n", "the first line names label twice"),
        ("path,label,zero_shot_label\na.png,coat,bag\n", "has answers of pta, not a person's labels"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(text, complaint, tmp_path):
    with pytest.raises(PtaError) as refused:
        labels_by_key(written(tmp_path, text), NAMES)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_class_called_none_is_refused(tmp_path):
    with pytest.raises(PtaError, match="a class is called none"):
        labels_by_key(written(tmp_path, "path,label\na.png,none\n"), ("coat", "none"))


def test_either_path_may_have_more_folders_in_front(tmp_path):
    file = written(tmp_path, "path,label\n/data/a/1.png,coat\n2.png,none\nelsewhere/3.png,bag\n")
    labels = labels_of_paths(file, NAMES, ["a/1.png", "b/1.png", "b/2.png", "b/3.png"])
    assert labels.tolist() == [1, UNKNOWN, NONE, UNKNOWN]
    with pytest.raises(PtaError, match=r"1\.png fits a/1\.png and b/1\.png; give more of its path"):
        labels_of_paths(written(tmp_path, "path,label\n1.png,coat\n"), NAMES, ["a/1.png", "b/1.png"])
    with pytest.raises(PtaError, match=r"gives a/1\.png two labels"):
        labels_of_paths(written(tmp_path, "path,label\na/1.png,coat\n1.png,bag\n"), NAMES, ["a/1.png"])
    with pytest.raises(PtaError, match=r"no label for any of these samples, the first of which is a/1\.png"):
        labels_of_paths(written(tmp_path, "path,label\n9.png,coat\n"), NAMES, ["a/1.png"])


# -- the commands -----------------------------------------------------------------------------------------------------

COUNT = 40
LABELS = {3: "coat", 4: "none", 20: "bag", 39: "shirt"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos", COUNT)
    write_classes(tmp_path / "classes.txt")
    return tmp_path


def rows_of(text):
    return [json.loads(line) for line in text.splitlines()]


WITH_MODEL = ("--classes", "classes.txt", "--model", "embedded", "--device", "cpu")


@pytest.fixture
def labelled(pta, place):
    """The paths of all samples, and a file with labels of some."""
    done = pta("predict", "photos", *WITH_MODEL)
    assert done.returncode == 0, done.stderr
    paths = [row["path"] for row in rows_of(done.stdout)]
    lines = [f"{paths[number]},{label}" for number, label in LABELS.items()]
    return paths, written(place, "\n".join(["path,label", *lines]) + "\n"), rows_of(done.stdout)


@pytest.mark.parametrize("method", ["pta", "wpta", "tda"])
def test_predict_learns_labels_as_the_adapter_does(pta, labelled, place, method):
    _, file, _ = labelled
    features = pta("extract", "photos", *WITH_MODEL, "--out", "features.safetensors")
    assert features.returncode == 0, features.stderr
    how = ("--method", method, "--learn-labels", file, "--state", "state", "--batch", 7)
    done = pta("predict", "photos", *WITH_MODEL, *how)
    assert done.returncode == 0, done.stderr
    assert "; 4 with a given label; state saved" in done.stderr
    rows = rows_of(done.stdout)
    assert [row["learned_label"] for row in rows] == [LABELS.get(number, "") for number in range(COUNT)]
    data = load_features("features.safetensors")
    names = data.classifier.class_names
    numbers = {"none": NONE} | {name: number for number, name in enumerate(names)}
    told = np.array([numbers[LABELS[number]] if number in LABELS else UNKNOWN for number in range(COUNT)])
    adapter = create_adapter(method, data.classifier)
    logits = adapter.step_or_answer(data.samples, told)
    assert [row["label"] for row in rows] == [names[label] for label in logits.argmax(dim=1)]
    chances = adapter.probabilities(logits).amax(dim=1).tolist()
    assert [row["probability"] for row in rows] == pytest.approx(chances, abs=1e-4)
    assert load_adapter(place / "state").position == adapter.position == COUNT - 1


def test_a_run_that_was_stopped_goes_on_with_the_same_labels(pta, labelled, place):
    paths, file, _ = labelled
    how = (*WITH_MODEL, "--learn-labels", file)
    whole = pta("predict", "photos", *how, "--out", "whole.csv", "--state", "whole")
    first = pta("predict", *paths[:25], *how, "--out", "rows.csv", "--state", "state")
    assert (whole.returncode, first.returncode) == (0, 0), (whole.stderr, first.stderr)
    rest = pta("predict", "photos", *how, "--out", "rows.csv", "--state", "state", "--resume")
    assert rest.returncode == 0, rest.stderr
    one, other = (list(csv.DictReader((place / name).read_text().splitlines())) for name in ("whole.csv", "rows.csv"))
    assert [row["learned_label"] for row in one] == [row["learned_label"] for row in other]
    assert [row["label"] for row in one] == [row["label"] for row in other]
    refused = pta("predict", "photos", *WITH_MODEL, "--out", "rows.csv", "--state", "state", "--append")
    assert refused.returncode == 2
    assert "--learn-labels as before" in refused.stderr


def test_in_the_shadow_zero_shot_answers_and_adaptation_learns(pta, labelled, place):
    _, _, plain = labelled
    done = pta("predict", "photos", *WITH_MODEL, "--shadow", "--state", "shadow", "--top", 2)
    open_ = pta("predict", "photos", *WITH_MODEL, "--state", "open")
    assert (done.returncode, open_.returncode) == (0, 0), done.stderr
    assert "wpta would change " in done.stderr
    rows = rows_of(done.stdout)
    assert [row["adapted_label"] for row in rows] == [row["label"] for row in plain]
    for shown, answered in (("label", "zero_shot_label"), ("probability", "zero_shot_probability")):
        assert [row[shown] for row in rows] == [row[answered] for row in rows] == [row[answered] for row in plain]
    assert [row["top"][0]["label"] for row in rows] == [row["label"] for row in rows]
    one, other = (load_adapter(place / name).state() for name in ("shadow", "open"))
    assert all((one[name] == other[name]).all() for name in one)


def test_a_classifier_takes_labels_by_name_and_can_be_a_shadow():
    pictures = [FASHION.images[number] for number in range(4)]
    classifier = pta.Classifier("embedded", classes=FASHION.class_names, cache=None, shadow=True)
    answers = classifier(pictures, labels=["coat", None, None, "bag"])
    assert [answer.label for answer in answers] == [answer.zero_shot_label for answer in answers]
    assert all(answer.adapted_label is not None for answer in answers)
    classifier(pictures[0], labels="ankle boot")
    assert classifier.adapter.position == 5
    for wrong, complaint in (
        ({"labels": ["coat"]}, "there must be one label per sample, 4, got 1"),
        ({"labels": ["cat"] * 4}, "no class is called 'cat'"),
        ({"labels": [1, 2, 3, 4]}, "classes must be a list of texts"),
        ({"labels": [None] * 4, "learn": False}, "labels are for learning"),
    ):
        with pytest.raises(PtaError, match=complaint):
            classifier(pictures, **wrong)
    assert classifier.adapter.position == 5


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (("--method", "dota", "--learn-labels", "labels.csv"), "dota does not learn labels; pta, wpta and tda do"),
        (("--learn-labels", "none.csv"), "none.csv"),
        (("--learn-labels", "labels.csv", "--freeze", "--state", "x"), "--learn-labels learns, and --freeze does not"),
        (("--learn-labels", "other.csv"), "other.csv has no label for any of these samples, the first of which is"),
    ],
)
def test_mistakes_with_labels_are_one_line(pta, labelled, place, given, complaint):
    (place / "other.csv").write_text("path,label\nnowhere.png,coat\n")
    done = pta("predict", "photos", *WITH_MODEL, *given)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_samples_whose_label_was_learned_are_not_counted(pta, labelled, place):
    paths, file, _ = labelled
    rng = np.random.default_rng(0)
    names = FASHION.class_names
    truth = [names[number] for number in rng.integers(len(names), size=COUNT)]
    (place / "truth.csv").write_text("\n".join(["path,label", *map(",".join, zip(paths, truth, strict=True))]) + "\n")
    made = pta("extract", "photos", *WITH_MODEL, "--out", "features.safetensors")
    assert made.returncode == 0, made.stderr
    on = ("eval", "--features", "features.safetensors", "--labels", "truth.csv", "--stream", "given", "--json", "-")
    records = {}
    for given in ((), ("--learn-labels", str(file))):
        done = pta(*on, "--method", "clip", "--method", "wpta", *given)
        assert done.returncode == 0, done.stderr
        records[given] = json.loads(done.stdout)
    assert [record["n"] for record in records[()]] == [COUNT, COUNT]
    told = records["--learn-labels", str(file)]
    assert [record["n"] for record in told] == [COUNT - len(LABELS)] * 2
    assert [record["stream"].get("labels_learned") for record in told] == [None, len(LABELS) - 1]  # one is none
    data = load_features("features.safetensors")
    right = np.array([names[at] for at in data.zero_shot_predictions]) == np.array(truth)
    kept = [number not in LABELS for number in range(COUNT)]
    assert told[0]["accuracy"] == pytest.approx(100 * right[kept].mean())
    nothing = pta(*on[:3], "--labels", str(file), "--learn-labels", str(file))
    assert nothing.returncode == 2
    assert "nothing can be counted" in nothing.stderr
    refused = pta(*on[:3], "--learn-labels", str(file), "--method", "dota")
    assert refused.returncode == 2
    assert "dota does not learn labels" in refused.stderr


def test_a_compiled_program_refuses_labels():
    encoder = load_encoder("embedded")
    classifier = pta.Classifier(encoder, classes=["coat", "bag"], cache=None).classifier
    program = pta.compile(encoder, pta.create_adapter("pta", classifier))
    pixels = np.zeros((1, *program._pixels.shape[1:]), np.uint8)
    with pytest.raises(PtaError, match="recorded without labels"):
        program(pixels, labels=[0])
