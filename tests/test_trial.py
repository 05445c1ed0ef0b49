"""`pta trial`: the same labels as `pta predict`, a verdict that recomputes, and one line for every mistake."""

import csv
import json
import shutil
from dataclasses import replace
from fractions import Fraction
from html import escape

import numpy as np
import pytest
import torch
from PIL import Image

from pta.data.fashion import load_fashion_test
from pta.data.features import FeatureFile, load_features
from pta.data.orders import iid
from pta.data.sample_set import SampleFile, SampleSet
from pta.data.shifts.images import apply_shift
from pta.errors import InvalidSamples, UnreadSample
from pta.measure.difference import Difference, Resampling
from pta.measure.trial.labels import match_labels
from pta.measure.trial.trial import COMPARED, LabelledStream, Trial, run_trial
from pta.methods import DEFAULT_METHOD, create_adapter, load_adapter

MODEL = ["--model", "embedded"]
FASHION = load_fashion_test()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """All packaged pictures under noise, in a sub-folder per class, as somebody sorted them."""
    folder = tmp_path_factory.mktemp("shelf")
    pictures = apply_shift(FASHION.images, "gaussian_noise", 3, 1)
    for number, label in enumerate(FASHION.labels):
        own = folder / "labelled" / FASHION.class_names[label]
        own.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pictures[number]).save(own / f"{number:04}.png")
    (folder / "classes.txt").write_text("\n".join(FASHION.class_names))
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Ninety pictures of three classes in sub-folders, and all of them with thirty others as they came."""
    folder = tmp_path_factory.mktemp("small")
    pictures = apply_shift(FASHION.images, "gaussian_noise", 3, 1)
    chosen = [number for number, label in enumerate(FASHION.labels) if label in (0, 1, 8)][:120]
    (folder / "photos").mkdir()
    for place, number in enumerate(chosen):
        image = Image.fromarray(pictures[number])
        image.save(folder / "photos" / f"{place:03}.png")
        if place < 90:
            own = folder / "labelled" / FASHION.class_names[FASHION.labels[number]]
            own.mkdir(parents=True, exist_ok=True)
            image.save(own / f"picture {place}.png")
    return folder


def labels_of(file):
    with file.open(newline="") as rows:
        return {row["path"]: row["label"] for row in csv.DictReader(rows)}


# -- the same as predict -----------------------------------------------------------------------------------------------


def test_the_trial_of_a_sorted_folder_has_the_labels_that_predict_gives(pta, shelf, tmp_path, monkeypatch):
    monkeypatch.setenv("PTA_CACHE", str(tmp_path / "cache"))
    done = pta("trial", "labelled", *MODEL, "--json", tmp_path / "trial.json", cwd=shelf)
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "trial.json").read_text())
    (features,) = (tmp_path / "cache" / "trials").glob("*.safetensors")
    data = load_features(features)
    tried = run_trial(LabelledStream(data, data.labels, ""))
    names = data.classifier.class_names
    options = {DEFAULT_METHOD: [], "pta": ["--method", "pta"], "tda": ["--method", "tda"]}
    options["zero-shot with prior"] = ["--method", "clip", "--prior", "local"]
    for result, record in zip(tried.results, said["methods"], strict=True):
        assert record["given"]["accuracies"][1] == pytest.approx(result.given.accuracy)
        if result.name in options:
            out = tmp_path / f"{result.name}.csv"
            given = ["labelled", "--classes", "classes.txt", *MODEL, *options[result.name], "--out", out]
            assert pta("predict", *given, cwd=shelf).returncode == 0
            rows = labels_of(out)
            found = {f"labelled/{data.paths[at]}": names[answer] for at, answer in enumerate(result.given.predictions)}
            assert rows == found
    default = tried.results[1]
    order = iid(len(data.labels), 1)
    listed = shelf / "shuffled.csv"
    listed.write_text("path\n" + "".join(f"labelled/{data.paths[at]}\n" for at in order))
    given = ["shuffled.csv", "--classes", "classes.txt", *MODEL, "--out", tmp_path / "shuffled.csv"]
    assert pta("predict", *given, cwd=shelf).returncode == 0
    assert [*labels_of(tmp_path / "shuffled.csv").values()] == [names[one] for one in default.shuffled[0].predictions]
    assert "one class after the other" in said["order"]
    assert said["recommended"]["name"] == f"{DEFAULT_METHOD} without gate"  # which this shift needs


def test_a_second_trial_encodes_nothing(pta, small, tmp_path, monkeypatch):
    monkeypatch.setenv("PTA_CACHE", str(tmp_path))
    first = pta("trial", "labelled", *MODEL, cwd=small)
    (file,) = (tmp_path / "trials").glob("*.safetensors")
    written = file.stat().st_mtime_ns
    second = pta("trial", "labelled", *MODEL, cwd=small)
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert file.stat().st_mtime_ns == written


# -- the numbers -------------------------------------------------------------------------------------------------------


def stream(seed=1, count=120, known=None):
    """Four classes that zero-shot often mistakes; labels of the last samples may be unknown."""
    rng = np.random.default_rng(seed)
    anchors, labels = rng.standard_normal((4, 16)), np.sort(rng.integers(4, size=count))
    noisy = torch.from_numpy(anchors[labels] + 2.5 * rng.standard_normal((count, 16)) + 1)
    from pta.core.classifier import ZeroShotClassifier
    from pta.core.samples import Samples

    data = FeatureFile("made", Samples.of(noisy), ZeroShotClassifier(anchors, list("abcd")), None)
    labels[known or count :] = -1
    return LabelledStream(data, labels, "")


def test_every_run_is_the_method_alone_and_only_known_labels_count():
    given = stream(known=90)
    tried = run_trial(given, batch=7)
    order = iid(120, 1)
    for result in tried.results:
        method, parameters = COMPARED[result.name]
        alone = create_adapter(method, given.data.classifier, **parameters).step(given.data.samples).argmax(dim=1)
        assert result.given.predictions.tolist() == alone[:90].tolist()
        adapter = create_adapter(method, given.data.classifier, **parameters)
        shuffled = adapter.step(given.data.samples[torch.from_numpy(order)]).argmax(dim=1).numpy()
        assert result.shuffled[0].predictions.tolist() == shuffled[order < 90].tolist()
        adapter.reset()
        adapter.step(given.data.samples[torch.from_numpy(order[:60])])
        frozen = adapter.predict(given.data.samples[torch.from_numpy(order[60:])]).argmax(dim=1).numpy()
        assert result.frozen[0].predictions.tolist() == frozen[order[60:] < 90].tolist()
        right = sum(map(int, result.given.predictions == given.labels[:90]))
        before = sum(map(int, given.data.zero_shot_predictions[:90] == given.labels[:90]))
        gains = tried.gains[[*tried.results].index(result)]
        assert gains["given"].difference == pytest.approx(float(100 * Fraction(right - before, 90)))


def test_a_state_goes_on_and_is_tried_frozen():
    given = stream()
    state = create_adapter("pta", given.data.classifier)
    state.step(given.data.samples[:40])
    before = state.to_bytes()
    last = run_trial(given, state).results[-1]
    assert state.to_bytes() == before
    assert last.frozen[0].predictions.tolist() == state.predict(given.data.samples).argmax(dim=1).tolist()
    assert last.given.predictions.tolist() == state.clone().step(given.data.samples).argmax(dim=1).tolist()


def test_a_method_is_recommended_only_if_it_is_better_by_holms_intervals(monkeypatch):
    tried = run_trial(stream(2))
    default = tried.results[1].given

    def with_right(run, fixed, broken):
        """A run that corrects some of the default's mistakes and makes some others."""
        answers, good = default.predictions.copy(), default.predictions == default.labels
        answers[np.flatnonzero(~good)[:fixed]] = default.labels[np.flatnonzero(~good)[:fixed]]
        wrong = np.flatnonzero(good)[:broken]
        answers[wrong] = (default.labels[wrong] + 1) % 4
        return run.at(np.arange(len(run.order)), default.labels).__class__(**{**vars(run), "predictions": answers})

    def trial_of(*changes):
        others = [replace(tried.results[0], given=with_right(tried.results[0].given, *pair)) for pair in changes]
        return Trial(tried.stream, [others[0], tried.results[1], *others[1:]])

    assert trial_of((0, 0), (0, 9)).recommended is None
    # 6 to 0 is outside of a 95 % interval, and inside of one that is corrected for many methods
    alone, _ = trial_of((7, 0)), None
    assert alone.recommended is not None
    one = Difference.between([default], [alone.results[0].given], Resampling(level=0.95))
    assert one.better == "B"
    best, found = trial_of((12, 0), (20, 0), (0, 5)).recommended
    assert found.difference == pytest.approx(100 * 20 / 120)
    assert found.resampling.level == pytest.approx(1 - 0.05 / 3)
    assert Difference.between([default], [best.given]).fixed == 20


def test_copies_of_a_sample_are_one_sample_that_came_often():
    once = stream(count=60)
    labels = np.tile(once.labels, 5)
    many = replace(once.data, samples=once.data.samples[torch.arange(300) % 60])
    single, copied = (run_trial(given).gains[0]["shuffled"] for given in (once, LabelledStream(many, labels, "")))
    assert (single.n, copied.n) == (60, 60)
    repeated = run_trial(LabelledStream(many, labels, "")).verdict
    low, high = repeated.interval
    assert high - low > 1 / 60  # as wide as that of 60 samples, not of 300


def test_few_changes_are_no_difference_found():
    right = np.zeros((1, 250))
    some = right.copy()
    for changed, better in ((5, None), (6, "B")):
        some[:, :changed] = 1
        found = Difference.paired(right, some, np.ones((1, 250)))
        assert (found.interval[0] > 0, found.better, found.changed) == (True, better, changed)
    assert "differ on 5 of 250 images" in Difference.paired(
        right, some * (np.arange(250) < 5), np.ones((1, 250))
    ).sentence("b")


# -- labels for some of a stream ---------------------------------------------------------------------------------------


def listed(folder, names):
    return [SampleFile(folder / name, name) for name in names]


def test_labels_are_found_by_content_then_by_a_name_that_is_unique(tmp_path):
    for name, content in {"a/1.png": b"one", "a/2.png": b"two", "b/3.png": b"new three", "b/4.png": b"gone"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for name, content in {"x.png": b"one", "1.png": b"other", "3.png": b"old three", "y.png": b"one"}.items():
        (tmp_path / name).write_bytes(content)
    labelled = SampleSet(
        "labelled",
        ("a", "b"),
        tuple(listed(tmp_path, ["a/1.png", "a/2.png", "b/3.png", "b/4.png"])),
        np.array([0, 0, 1, 1]),
    )
    found = match_labels(listed(tmp_path, ["x.png", "1.png", "3.png", "y.png"]), labelled)
    assert found.labels.tolist() == [0, -1, 1, 0]  # 1.png is another picture of that name
    assert (found.by_content, found.by_name, found.missing, found.contradicting) == (1, 1, 2, ())


def test_a_name_that_a_found_sample_has_too_does_not_count(tmp_path):
    for name, content in {"bag/1.png": b"bag", "coat/1.png": b"coat", "x.png": b"bag", "1.png": b"a dress"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    labelled = SampleSet("l", ("bag", "coat"), tuple(listed(tmp_path, ["bag/1.png", "coat/1.png"])), np.array([0, 1]))
    found = match_labels(listed(tmp_path, ["x.png", "1.png"]), labelled)
    assert (found.labels.tolist(), found.by_name, found.missing) == ([0, -1], 0, 1)


def test_what_cannot_be_read_is_an_error_unless_it_is_skipped(tmp_path):
    (tmp_path / "a.png").write_bytes(b"one")
    labelled = SampleSet("l", ("a",), tuple(listed(tmp_path, ["a.png", "gone.png"])), np.array([0, 0]))
    with pytest.raises(UnreadSample, match=r"gone\.png"):
        match_labels(listed(tmp_path, ["a.png"]), labelled)
    found = match_labels(listed(tmp_path, ["a.png", "gone.png"]), labelled, passed=(UnreadSample,))
    assert found.labels.tolist() == [0, 0]  # the second by its name


def test_content_with_two_labels_is_not_counted(tmp_path):
    for name in ("p.png", "q.png", "r.png"):
        (tmp_path / name).write_bytes(b"same")
    (tmp_path / "s.png").write_bytes(b"another")
    labelled = SampleSet("l", ("a", "b"), tuple(listed(tmp_path, ["p.png", "q.png", "s.png"])), np.array([0, 1, 1]))
    found = match_labels(listed(tmp_path, ["r.png", "s.png"]), labelled)
    assert (found.labels.tolist(), found.contradicting) == ([-1, 1], ("p.png", "q.png"))


def test_labels_that_are_not_in_the_stream_are_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"one")
    (tmp_path / "b.png").write_bytes(b"two")
    with pytest.raises(InvalidSamples, match="neither by content nor by file name"):
        match_labels(
            listed(tmp_path, ["b.png"]), SampleSet("l", ("a",), tuple(listed(tmp_path, ["a.png"])), np.array([0]))
        )


def test_the_whole_unlabelled_stream_is_run_and_the_labelled_part_counted(pta, small, tmp_path):
    done = pta("trial", "labelled", "--unlabelled", "photos", *MODEL, "--json", tmp_path / "trial.json", cwd=small)
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "trial.json").read_text())
    assert (said["samples"], said["labelled"], said["verdict"]["n"]) == (120, 90, 90)
    assert "90 of 90 labelled images are in the stream: 90 by content" in done.stdout
    assert "All 120 images of photos came in their own order" in done.stdout


# -- mistakes ----------------------------------------------------------------------------------------------------------


def one_line(done, *words, code=2):
    assert done.returncode == code, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def copied(small, tmp_path):
    return shutil.copytree(small / "labelled", tmp_path / "labelled")


def test_mistakes_get_one_line_before_the_model_is_loaded(pta, small, tmp_path, monkeypatch):
    monkeypatch.setattr("pta.cli.options.load_encoder", None)
    folder = copied(small, tmp_path)
    one_line(pta("trial", "labelled", *MODEL, "--classes", "bag,coat"), "t-shirt")
    (folder / "t-shirt").rename(tmp_path / "away")
    (folder / "trouser").rename(tmp_path / "gone")
    one_line(pta("trial", "labelled", *MODEL, "--classes", "bag,coat"), "bag", "two classes or more")
    few = tmp_path / "few" / "a"
    few.mkdir(parents=True)
    for path in sorted((folder / "bag").iterdir())[:3]:
        shutil.copy(path, few)
    one_line(pta("trial", "few", *MODEL, "--classes", "a,b"), "3 labels are too few")
    (tmp_path / "some.csv").write_text("path,label\nfew/a/x.png,a\nfew/a/y.png,\n")
    one_line(pta("trial", "some.csv", *MODEL), "line 3 has no label")
    one_line(pta("trial", "few/a", *MODEL), "has no labels")
    (tmp_path / "rows.csv").write_text("path,label,probability,zero_shot_label\nfew/a/x.png,a,0.5,a\n")
    one_line(pta("trial", "rows.csv", *MODEL), "answers of pta predict")
    (tmp_path / "addresses.csv").write_text("path\nhttps://example.org/a.png\n")
    one_line(pta("predict", "addresses.csv", *MODEL, "--classes", "a,b"), "--cluster")
    one_line(pta("trial", "nothing", *MODEL), "nothing")


def test_a_state_of_other_classes_is_refused(pta, small, pets, tmp_path):
    create_adapter("pta", load_features(pets).classifier).save(tmp_path / "pets.safetensors")
    given = [small / "labelled", *MODEL, "--state", tmp_path / "pets.safetensors"]
    one_line(pta("trial", *given), "other classes", "newt")


def test_a_picture_that_vanishes_is_named(pta, small, tmp_path, monkeypatch):
    folder = copied(small, tmp_path)
    victim = sorted((folder / "bag").iterdir())[0]
    victim.unlink()
    victim.symlink_to(tmp_path / "was here")
    done = pta("trial", "labelled", *MODEL)
    one_line(done, victim.name, code=1)


def test_the_same_picture_in_two_classes_is_warned_about(pta, small, tmp_path):
    folder = copied(small, tmp_path)
    twin = sorted((folder / "bag").iterdir())[0]
    shutil.copy(twin, folder / "trouser" / "copy.png")
    done = pta("trial", "labelled", *MODEL)
    assert done.returncode == 0
    assert "the same sample has two" in done.stderr
    assert "trouser/copy.png" in done.stderr


def test_a_feature_file_needs_labels_and_no_pictures(pta, pets, tmp_path):
    done = pta("trial", pets)
    assert done.returncode == 0, done.stderr
    assert "pta predict (wpta)" in done.stdout
    with np.load(pets) as held:
        np.savez(tmp_path / "bare.npz", **{name: held[name] for name in held.files if name != "labels"})
    one_line(pta("trial", tmp_path / "bare.npz"), "has no labels")
    one_line(pta("trial", pets, "--unlabelled", "."), "--unlabelled")


def test_a_page_has_a_place_of_its_own(pta, pets, tmp_path):
    for command in (["trial", pets], ["eval", "--features", pets]):
        for places in (["--report", "-"], ["--report", "page.txt"], ["--report", "a.html", "--json", "a.html"]):
            one_line(pta(*command, *places), "ends in .html")
    assert not list(tmp_path.iterdir())


def test_the_page_of_a_trial_has_its_verdict_and_pictures(pta, small, tmp_path):
    given = ["trial", "labelled", *MODEL, "--templates", "{}", "--report", tmp_path / "page.html"]
    said = json.loads(pta(*given, "--json", "-", cwd=small).stdout)
    page = (tmp_path / "page.html").read_text()
    assert escape(said["sentences"][0].split(" (")[0]) in page
    assert "Other orders" in page
    assert "<img" in page
    one_line(pta(*given, cwd=small), "--replace")
    assert pta(*given, "--replace", "--no-pictures", cwd=small).returncode == 0
    assert "<img" not in (tmp_path / "page.html").read_text()


def test_names_of_folders_do_not_reach_the_cache(pta, small, tmp_path, monkeypatch):
    monkeypatch.setenv("PTA_CACHE", str(tmp_path / "cache"))
    odd = tmp_path / ("fol\udcff<script>" + "x" * 200)
    shutil.copytree(small / "labelled", odd)
    assert pta("trial", odd, *MODEL).returncode == 0
    (file,) = (tmp_path / "cache" / "trials").glob("*.safetensors")
    assert len(file.name) < 80
    assert file.name.isascii()


# -- eval in the given order, from a state -----------------------------------------------------------------------------


def test_eval_takes_the_order_of_the_file_and_names_it(pta, pets, tmp_path):
    done = pta("eval", "--features", pets, "--stream", "given", "--json", tmp_path / "given.json")
    assert "in the order of the file" in done.stdout
    data = load_features(pets)
    alone = create_adapter("pta", data.classifier).step(data.samples).argmax(dim=1).numpy()
    (record,) = [one for one in json.loads((tmp_path / "given.json").read_text()) if one["method"] == "pta"]
    assert record["accuracy"] == pytest.approx(100 * float((alone == data.labels).mean()))
    one_line(pta("eval", "--features", pets, "--stream", "given", "--seed", "1", "--seed", "2"), "one order")


def test_eval_continues_a_state(pta, pets, tmp_path):
    data = load_features(pets)
    adapter = create_adapter("pta", data.classifier, h=5.0)
    adapter.step(data.samples[:50])
    adapter.save(tmp_path / "state.safetensors")
    given = ["--features", pets, "--stream", "given", "--state", "state.safetensors", "--json", "out.json"]
    assert pta("eval", *given).returncode == 0
    (record,) = [one for one in json.loads((tmp_path / "out.json").read_text()) if one["method"] == "pta"]
    answers = load_adapter(tmp_path / "state.safetensors").step(data.samples).argmax(dim=1).numpy()
    assert record["accuracy"] == pytest.approx(100 * float((answers == data.labels).mean()))
    assert (record["params"]["h"], record["stream"]["learned_before"]) == (5.0, 50)
    one_line(pta("eval", *given, "--method", "pta", "--replace"), "leave it out of --method")
    one_line(pta("eval", *given, "--classes-drawn", "2", "--replace"), "--classes-drawn")


# -- a sorted stream is noticed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "warned"), [("pta", True), ("tda", True), ("clip", False), ("wpta", False), ("pta --prior local", False)]
)
def test_predict_warns_once_of_a_sorted_stream_that_the_method_cannot_take(pta, shelf, tmp_path, method, warned):
    given = ["--classes", shelf / "classes.txt", *MODEL, "--method", *method.split(), "--out", tmp_path / "rows.csv"]
    some = [shelf / "labelled" / name for name in ("ankle boot", "bag", "trouser")]
    done = pta("predict", *some, *given)
    assert done.returncode == 0
    assert done.stderr.count("come sorted by class") == warned


def test_predict_does_not_warn_of_a_shuffled_stream(pta, shelf, tmp_path):
    files = sorted((shelf / "labelled").rglob("*.png"))
    mixed = [str(files[at]) for at in iid(len(files), 1)[:600]]
    given = ["--classes", shelf / "classes.txt", *MODEL, "--method", "pta", "--out", tmp_path / "rows.csv"]
    assert "sorted" not in pta("predict", "-", *given, stdin="\n".join(mixed).encode()).stderr
