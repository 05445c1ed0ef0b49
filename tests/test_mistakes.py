"""A newcomer's mistakes: each is answered in one line that says what to do, and changes nothing."""

import io
import re

import numpy as np
import pytest
import torch
from photos import FASHION
from PIL import Image
from refusals import refusal

import pta
from pta.cli.options import read_classes
from pta.data.open import find_samples

NAMES = list(FASHION.class_names)
GREY = FASHION.images[0]
RGB = np.repeat(GREY[..., None], 3, axis=2)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two pictures, a good class file, and files that people have in their place."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "photos").mkdir()
    for number in range(2):
        Image.fromarray(FASHION.images[number]).save(folder / "photos" / f"{number}.png")
    texts = {"classes.txt": NAMES, "tabs.txt": ["0\tcoat", "1\tbag"], "twice.txt": ["coat", "bag", "coat"]}
    texts |= {"comments.txt": ["# clothes", "coat", "  # and", "bag"], "heading.txt": ["classname", *NAMES]}
    texts |= {"numbers.txt": ["id,name", "0,coat", "1,bag"], "one.txt": ["# one", "coat"]}
    texts |= {"bullets.txt": ["- coat", "- bag"], "quotes.txt": ['"coat"', '"bag"'], "commas.txt": ["coat,", "bag,"]}
    texts |= {"counted.txt": ["0 coat", "1 bag"], "names.yaml": ["names:", "  0: coat", "  1: bag"]}
    for name, lines in texts.items():
        (folder / name).write_text("\n".join(lines))
    (folder / "latin.txt").write_bytes("Stiefel\nHalbschuh für Männer".encode("latin-1"))
    (folder / "utf16.txt").write_bytes("coat\nbag".encode("utf-16"))
    (folder / "utf16-bare.txt").write_bytes("coat\nbag".encode("utf-16-le"))
    (folder / "party.mp4").write_bytes(b"\0\0\0\x20ftypisom")
    (folder / "rows.csv").write_text("index,label\n0,1\n")
    (folder / "phone").mkdir()
    for name in ("cat.HEIC", "cat.avif", "features.safetensors", "phone/1.heic"):
        (folder / name).touch()
    (folder / "heic.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    (folder / "token").write_text("0123456789abcdef")
    np.savez(folder / "theirs.npz", X=np.eye(3), y=np.arange(3))
    pta.Classifier("embedded", ["coat", "bag", "shirt"], method="pta", cache=None).save(folder / "old.safetensors")
    return folder


PREDICT = "predict photos --model embedded --classes classes.txt"
VIDEO = "predict --model embedded --classes classes.txt"
LONG_URL = f"https://example.org/{'very/' * 30}long.jpg?size=large&kind=shoe"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (f"{PREDICT} --freeze", "--freeze predicts from a saved state; name it with --state"),
        ("predict photos --model embedded", "--classes is required"),
        (f"{PREDICT} --classes photos", "--classes photos is a folder; .*: ls photos > classes.txt"),
        (f"{PREDICT} --classes latin.txt", "iconv -f LATIN1 -t UTF-8 latin.txt > converted.txt"),
        (f"{PREDICT} --classes utf16.txt", "iconv -f UTF-16 -t UTF-8 utf16.txt > converted.txt"),
        (f"{PREDICT} --classes utf16-bare.txt", "iconv -f UTF-16 -t UTF-8 utf16-bare.txt"),
        (f"{PREDICT} --classes tabs.txt", "tabs.txt, line 1 has a tab; .* cut -f2 tabs.txt > classes.txt"),
        (f"{PREDICT} --classes numbers.txt", "numbers before its names; .* cut -d, -f2 numbers.txt > classes.txt"),
        *(
            (f"{PREDICT} --classes {name}.txt", f"{name}.txt, line 1: '.*' is more than a name; write only names")
            for name in ("bullets", "quotes", "commas", "counted")
        ),
        (f"{PREDICT} --classes names.yaml", "names.yaml: write one class name per line into a text file"),
        (f"{PREDICT} --classes one.txt", "--classes one.txt names 1, but two or more classes are needed"),
        (f"{PREDICT} --classes cat", "no such file of class names: cat; a list has two or more classes with commas"),
        (f"{PREDICT} --classes twice.txt", "names 'coat' more than once"),
        (f'{PREDICT} --classes "shirt,white",coat', "put names with commas into a file"),
        (f"{PREDICT} --classes coat,bag,coat", "names 'coat' more than once"),
        (f"{PREDICT} --model openai/clip-vit-base-patch16", "did you mean 'hf:openai/clip-vit-base-patch16'?"),
        (f"{PREDICT} --model embeded", "did you mean 'embedded'?"),
        (f"{PREDICT} --model photos", "did you mean 'hf:photos'?"),
        (f"{PREDICT} --model ViT-B-16.pt", "did you mean 'file:ViT-B-16.pt'?"),
        (f"{PREDICT} --model gpt", "models are embedded .small, knows clothing only.*hf:FOLDER"),
        (f"{PREDICT} --dtype fp16", "unknown precision 'fp16'; did you mean 'float16'?"),
        (f"{PREDICT} --state old.safetensors", "other classes: only the given list has 'ankle boot', 'dress', "),
        (f"{PREDICT} --classes coat,bag,hat --state old.safetensors", "has 'shirt'; only the given list has 'hat'"),
        (f"{PREDICT} --classes bag,coat,shirt --state old.safetensors", "another order, first 'coat', 'bag', 'shirt'"),
        (f"{PREDICT} --out rows.csv", "rows.csv exists; --append adds to it, --replace overwrites it"),
        (f"{PREDICT} --out rows.csv --append --replace", "leave one of them out"),
        (f"{PREDICT} photos/*.jpg", "no such file or folder: 'photos/.*.jpg'"),
        (f"{VIDEO} party.mp4", "party.mp4: it is not a video that pta reads"),
        (f"{PREDICT} party.mp4 photos", "videos cannot be mixed with other paths; give videos by themselves"),
        (f"{VIDEO} party.mp4 --every never", "--every is a time such as 2s, 500ms or 0:01:30, not 'never'"),
        (f"{VIDEO} party.mp4 --region gate=1,2,3", "a region is NAME=X,Y,W,H"),
        (f"{VIDEO} none.mp4", "no such file: 'none.mp4'"),
        (f"{PREDICT} --every 2s", "--every is for videos and cameras; leave it out"),
        ("extract photos --model embedded --fps 2 --out x.safetensors", "--fps is for videos and cameras"),
        (f"{VIDEO} srt://camera/1", "not srt://; pipe the frames: ffmpeg -i ADDRESS -r 2 -f image2pipe"),
        (
            f"{VIDEO} rtsp://me:secret@camera/1",
            "holds a user or password, .*; put USER:PASSWORD into a file for --login",
        ),
        (f"{VIDEO} rtsp://camera/1 --start 5s", "is live; --start and --end are for files"),
        (
            f"{VIDEO} rtsp://camera/1 --login token",
            "token holds a password, so only its owner may read it: chmod 600",
        ),
        (f"{PREDICT} {LONG_URL}", "curl -fLO ADDRESS"),
        (f"extract {LONG_URL} --model embedded --out x.safetensors", "curl -fLO ADDRESS"),
        ("predict - --model embedded --classes classes.txt", "standard input was empty; - reads paths"),
        ("predict - --frames --model embedded --classes classes.txt", "standard input was empty"),
        ("predict - --model embedded --classes classes.txt --method onzeta", r"--set onzeta.length=1000\), or samples"),
        ("compare missing.json", "no such record file: missing.json"),
        ("compare rows.csv rows.csv", "records are JSON files of pta eval --json .*, not csv"),
        ("compare features.safetensors", "records are JSON files of pta eval --json .*, not safetensors"),
        ("eval --features photos", "no feature files .* in photos; make one with pta extract photos --out FILE"),
        ("eval --features theirs.npz", "no image_features .* this one has 'X', 'y'"),
        ("eval --features old.safetensors", "this one has 'anchored', 'classifier.anchors', 'knowledge'"),
        (f"{PREDICT} features.safetensors", "features.safetensors holds features .*; use pta eval --features"),
        (f"{PREDICT} theirs.npz", "theirs.npz is a feature file, not an image; use pta eval --features theirs.npz"),
        ("extract features.safetensors --model embedded --out x.safetensors", "use pta eval --features"),
        (f"{PREDICT} cat.HEIC", "pta does not read .heic files; convert them, .*: magick cat.HEIC cat.jpg"),
        (f"{PREDICT} cat.avif", "pta does not read .avif files; convert them, .*: magick cat.avif cat.jpg"),
        (PREDICT.replace("photos", "heic.jpg"), "heic.jpg: it is a HEIC or AVIF photograph, .*; convert it"),
        (f"{PREDICT} phone", "no images in phone"),
        ("stream list", "--token-file .or PTA_TOKEN_FILE. is required: .* a running pta serve.* PTA_SERVER"),
        (f"{PREDICT} --log-file none/log.txt", "--log-file none/log.txt cannot be written: no such file or directory"),
    ],
)
def test_a_mistake_on_the_command_line_is_answered_with_what_to_do(pta, place, line, answer):
    before = sorted(place.rglob("*"))
    done = pta(*line.split(), cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(answer, done.stderr.splitlines()[-1]), done.stderr
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("classes", "warning"),
    [
        ("Coat,coat", "several classes are called 'Coat', 'coat': their texts differ at most in case"),
        ("heading.txt", "'classname' was taken as a class, but looks like the heading of a table"),
        ("coat,dog", "the packaged model knows clothing only and was not trained on 'dog'"),
    ],
)
def test_doubtful_class_names_are_answered_and_warned_about_in_one_line(pta, place, classes, warning):
    done = pta("predict", "photos", "--model", "embedded", "--classes", classes, "--quiet", cwd=place)
    assert (done.returncode, done.stdout.count("\n")) == (0, 2)
    told = [line for line in done.stderr.splitlines() if warning in line]
    assert len(told) == 1, done.stderr
    assert told[0].startswith("pta: warning: ")


def test_comments_in_a_class_file_are_skipped_and_said(pta, place):
    done = pta("predict", "photos", "--model", "embedded", "--classes", "comments.txt", "--top", "9", cwd=place)
    assert "pta: comments.txt: lines that begin with # are comments, not classes (2 left out)\n" in done.stderr
    assert "warning" not in done.stderr
    assert "#" not in done.stdout


def test_photographs_that_are_not_read_are_left_out_of_a_folder_with_a_warning(pta, place, tmp_path):
    (tmp_path / "mixed").mkdir()
    for name in ("1.heic", "2.heic", "3.png", "notes.txt"):
        (tmp_path / "mixed" / name).write_bytes((place / "photos" / "0.png").read_bytes())
    done = pta("predict", "mixed", "--model", "embedded", "--classes", place / "classes.txt")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    told = "warning: 2 files are left out: pta does not read .heic files; convert them"
    assert sum(told in line for line in done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("line", ["predict - --frames", "predict heic.jpg", "predict -"])
def test_a_refused_run_prints_no_count_of_images(pta, place, line):
    done = pta(*line.split(), "--model", "embedded", "--classes", "classes.txt", cwd=place)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_features_without_labels_are_evaluated_and_it_is_said_what_to_do(pta, tmp_path):
    rng = np.random.default_rng(1)
    arrays = {"image_features": rng.normal(size=(8, 4)), "text_features": np.eye(2, 4), "classnames": ["cat", "dog"]}
    np.savez(tmp_path / "wild.npz", **arrays)
    done = pta("eval", "--features", "wild.npz")
    assert done.returncode == 0
    told = "wild has no labels, so accuracies are unknown; --predictions DIR writes the answers; for labels, give pta"
    assert done.stderr.count(told) == 1


@pytest.mark.parametrize("line", ["", "predict", "state", "state add-class", "stream", "stream list", "datasets check"])
def test_h_shows_the_help(pta, line):
    short, long = (pta(*line.split(), option) for option in ("-h", "--help"))
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert "Usage:" in short.stdout


def test_a_quoted_pattern_is_what_it_matches(place):
    found = find_samples([str(place / "photo?" / "*.png")])
    assert [sample.path for sample in found] == [place / "photos" / "0.png", place / "photos" / "1.png"]
    odd = place / "photos[1].png"
    odd.write_bytes((place / "photos" / "0.png").read_bytes())
    assert [sample.path for sample in find_samples([str(odd)])] == [odd]
    odd.unlink()


def test_a_pattern_takes_each_file_once(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    files = [tmp_path / "1.png", tmp_path / "a" / "2.png", tmp_path / "a" / "b" / "3.png"]
    for file in files:
        file.touch()
    for pattern in ("**", "**/*.png"):
        assert [sample.path for sample in find_samples([str(tmp_path / pattern)])] == files


def test_a_class_is_named_once_but_may_be_called_like_a_folder(place, monkeypatch):
    monkeypatch.chdir(place)
    assert read_classes("photos,coat") == ["photos", "coat"]


PNG = io.BytesIO()
Image.fromarray(GREY).save(PNG, "PNG")
AS_A_LIST = r"give several pictures as a list, list\(pictures\)"


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (None, "got NoneType: the picture was not read"),
        ((one for one in FASHION.images[:2]), AS_A_LIST),
        (np.stack([RGB, RGB]), AS_A_LIST),
        (FASHION.images[:9], AS_A_LIST),
        (io.BytesIO(PNG.getvalue()), r"pass its content, file.read\(\)"),
        (b"hello", "not an image that pta reads"),
        (torch.from_numpy(RGB).permute(2, 0, 1), r"tensor.permute\(1, 2, 0\).cpu\(\).numpy\(\)"),
        (RGB / 255, r"\(255 \* image\).astype\(np.uint8\)"),
        (np.concatenate([RGB, RGB[..., :1]], axis=2), r"image\[:, :, :3\] leaves the alpha channel out"),
        (np.moveaxis(RGB, 2, 0), r"np.moveaxis\(image, 0, 2\) puts the channels last"),
        ({"picture": RGB}, "got dict"),
        ("https://example.org/a.jpg", "curl -fLO ADDRESS"),
        ("party.mp4", r"party.mp4 is a video, .* for frame in pta.frames\(…\)"),
    ],
    ids=lambda one: "" if isinstance(one, str) else type(one).__name__,
)
def test_what_is_no_picture_is_answered_with_what_makes_one(given, answer):
    classifier = pta.Classifier("embedded", NAMES)
    assert re.search(answer, refusal(classifier, given))
    assert classifier.adapter.position == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_bytes_of_a_file_are_a_picture(kind):
    classifier = pta.Classifier("embedded", NAMES)
    assert classifier(kind(PNG.getvalue())).label == "ankle boot"


def test_other_candidate_labels_need_another_classifier():
    classifier = pta.Classifier("embedded", NAMES)
    for call in (classifier.pipeline, lambda **given: classifier.pipeline()(GREY, **given)):
        assert "pta.Classifier(…, classes=['cat', 'dog'])" in refusal(call, candidate_labels=["cat", "dog"])
    assert classifier.pipeline()(GREY, candidate_labels=NAMES[::-1], top_k=1)[0]["label"] == "ankle boot"
