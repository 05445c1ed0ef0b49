"""Feature files are made once, survive a kill, and say where they come from."""

import json
import os
import re
import shutil
import signal

import numpy as np
import pytest
import torch
from photos import decode_image, write_photos
from PIL import Image
from safetensors import safe_open

from pta.data.features import load_features, read_about
from pta.data.open import open_samples
from pta.data.prompts import build_classifier
from pta.data.views import make_views
from pta.errors import FileInUse, InvalidParameter, PtaError, StateMismatch, UnreadableFile, UnreadableSample
from pta.models import EmbeddedEncoder
from pta.run.extract import extract
from pta.run.reading import Reading, Views

TEMPLATES = ("a photo of a {}.",)


class CountingEncoder(EmbeddedEncoder):
    """The embedded encoder, which remembers how many images it was given."""

    encoded = 0

    def features(self, pixels):
        self.encoded += len(pixels)
        return super().features(pixels)


@pytest.fixture
def encoder():
    return CountingEncoder.load().ready()


@pytest.fixture
def photos(tmp_path):
    write_photos(tmp_path / "photos", 40)
    return tmp_path / "photos"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "f.safetensors"


def spoil(photos, first, last=None):
    """Make one picture unreadable, or those from the first up to the last."""
    for path in sorted(photos.glob("*/*.jpg"))[first : last or first + 1]:
        path.write_bytes(b"no picture")


def stop_at(number, encoder, photos, out, **how):
    """An extraction that stops at a picture that cannot be read."""
    spoil(photos, number)
    with pytest.raises(UnreadableSample):
        run(encoder, photos, out, **how)


def run(encoder, photos, out, templates=TEMPLATES, **how):
    images = open_samples(photos)
    return extract(images, encoder, build_classifier(encoder, images.class_names, templates), out, **how)


def parts_of(out):
    return out.with_name(f"{out.name}.parts")


def paths_in(out):
    with safe_open(out, framework="pt") as file:
        return json.loads(file.get_tensor("paths").numpy().tobytes())


def test_the_file_holds_what_one_by_one_gives_and_says_where_it_comes_from(encoder, photos, out):
    images = open_samples(photos)
    done = run(encoder, photos, out, reading=Reading(batch=7, workers=2), shard=16, about={"model": "embedded"})
    assert (done.samples, done.encoded, done.skipped) == (40, 40, ())
    data = load_features(out)
    one_by_one = [encoder.encode(encoder.preprocess(decode_image(image.read()))) for image in images.samples]
    torch.testing.assert_close(data.samples.features, torch.cat(one_by_one), atol=1e-6, rtol=0)
    assert data.labels.tolist() == images.labels.tolist()
    assert data.classifier.class_names == images.class_names
    assert data.classifier.scale == pytest.approx(encoder.scale)
    assert (data.name, data.dataset) == ("f", images.name)
    assert not parts_of(out).exists()
    about = read_about(out)
    assert about["images"]["model"] == encoder.fingerprint
    assert about["images"]["preprocessing"]["size"] == 28
    assert about["images"]["count"] == about["count"] == 40
    assert "pixels" not in about["images"]  # as in files from before there were any
    assert about["model"] == "embedded"
    assert set(about["versions"]) >= {"python", "torch", "numpy", "pillow", "pta-vlm"}
    assert paths_in(out) == [image.key for image in images.samples]


def test_a_second_call_with_the_same_inputs_does_nothing_and_one_with_other_templates_encodes_no_image(
    encoder, photos, out
):
    run(encoder, photos, out)
    content, before = out.read_bytes(), load_features(out)
    assert run(encoder, photos, out, reading=Reading(batch=3, workers=1)).encoded == 0
    assert out.read_bytes() == content
    assert run(encoder, photos, out, templates=("a drawing of a {}.",)).encoded == 0
    assert encoder.encoded == 40
    after = load_features(out)
    assert torch.equal(after.samples.features, before.samples.features)
    assert after.labels.tolist() == before.labels.tolist()
    expected = build_classifier(encoder, open_samples(photos).class_names, ("a drawing of a {}.",))
    assert after.classifier.fingerprint == expected.fingerprint


@pytest.mark.parametrize(
    "other", [{}, {"views": Views(2)}, {"fast_decode": True}, {"raw": True}, {"patches": True}], ids=str
)
def test_other_inputs_are_encoded_again_if_that_is_wanted(other, encoder, photos, out):
    run(encoder, photos, out)
    reading = Reading(**other)
    if not other:
        Image.new("L", (9, 9)).save(next(photos.glob("bag/*.jpg")))
    before = out.read_bytes()
    with pytest.raises(StateMismatch, match=r"features of other samples or with other options; .*--replace"):
        run(encoder, photos, out, reading=reading)
    assert out.read_bytes() == before
    assert run(encoder, photos, out, reading=reading, replace=True).encoded == 40


def test_a_file_of_another_kind_is_not_overwritten(encoder, photos, out):
    encoder.write(out)
    before = out.read_bytes()
    with pytest.raises(StateMismatch, match="no feature file of pta extract"):
        run(encoder, photos, out)
    assert out.read_bytes() == before


def test_an_unreadable_image_stops_the_work_with_its_name_or_is_skipped_and_reported(encoder, photos, out):
    bad = sorted(photos.glob("*/*.jpg"))[5]
    bad.write_bytes(b"no picture")
    with pytest.raises(UnreadableSample, match=rf"{bad.name}: not an image.*--on-error skip"):
        run(encoder, photos, out)
    assert not out.exists()
    done = run(encoder, photos, out, on_error="skip")
    assert done.samples == 39
    assert [bad.name in line for line in done.skipped] == [True]
    data, images = load_features(out), open_samples(photos)
    assert data.labels.tolist() == np.delete(images.labels, 5).tolist()
    assert run(encoder, photos, out, on_error="skip") == done.__class__(out, 39, 0, done.skipped)
    with pytest.raises(UnreadableSample, match=rf"{bad.name}: not an image"):
        run(encoder, photos, out)  # what was skipped then is not silently missing now


def test_when_nothing_can_be_read_there_is_no_file(encoder, photos, out):
    spoil(photos, 0, 40)
    with pytest.raises(UnreadableSample, match="none of the 40 samples"):
        run(encoder, photos, out, on_error="skip")
    assert not out.exists()


def test_views_are_stored_beside_the_plain_features(encoder, photos, out):
    run(encoder, photos, out, reading=Reading(batch=8, views=Views(4, "augmix", seed=3)), shard=16)
    data, images = load_features(out), open_samples(photos)
    assert data.samples.views.shape == (40, 4, 128)
    torch.testing.assert_close(data.samples.views[:, 0].float(), data.samples.features, atol=1e-3, rtol=0)
    number = 17
    picture = decode_image(images.samples[number].read())
    again = encoder.encode(make_views(picture, encoder.preprocess, count=4, mode="augmix", seed=(3, number)))
    torch.testing.assert_close(data.samples.views[number].float(), again, atol=1e-3, rtol=0)


def test_pixels_are_stored_as_the_model_takes_them(encoder, photos, out):
    spoil(photos, 8, 16)  # a shard without a sample
    run(encoder, photos, out, reading=Reading(batch=4, raw=True), shard=8, on_error="skip")
    samples = load_features(out).samples
    assert samples.raw.shape == (32, 1, 28, 28)
    assert samples.raw.dtype == torch.uint8
    last = decode_image(open_samples(photos).samples[-1].read())
    assert samples.raw[-1].numpy().tolist() == encoder.preprocess.pixels(last).tolist()
    torch.testing.assert_close(encoder.encode(samples.raw), samples.features, atol=1e-6, rtol=0)


@pytest.mark.parametrize("views", [None, Views(4, "augmix", seed=3)])
def test_patches_are_those_of_the_plain_image(views, encoder, photos, out):
    run(encoder, photos, out, reading=Reading(batch=8, views=views, patches=True), shard=16)
    samples, picture = load_features(out).samples, decode_image(open_samples(photos).samples[17].read())
    assert samples.patches.shape == (40, encoder.patch_count(), 128)
    assert (samples.views is None) == (views is None)
    expected = encoder.encode_tokens(encoder.preprocess(picture))
    torch.testing.assert_close(samples.patches[17:18].float(), expected, atol=1e-3, rtol=0)


def test_the_size_of_the_file_is_known_before_any_feature_is_written(encoder, photos, out):
    told = []

    def on_size(size):
        told.append(size)
        assert not list(out.parent.glob("**/*.safetensors"))

    run(encoder, photos, out, reading=Reading(batch=4, views=Views(4), patches=True), shard=8, on_size=on_size)
    assert told == [40 * 128 * (4 + 4 * 2 + 49 * 2)]
    assert told[0] <= out.stat().st_size < 1.1 * told[0]


def test_pixels_survive_a_stop_another_size_of_shards_and_other_templates(encoder, photos, out):
    reading = Reading(batch=4, raw=True)
    stop_at(35, encoder, photos, out, reading=reading, shard=8)
    how = {"reading": reading, "shard": 100, "on_error": "skip"}
    assert run(encoder, photos, out, **how).encoded == 8
    before = load_features(out).samples
    assert run(encoder, photos, out, templates=("a drawing of a {}.",), **how).texts_renewed
    after = load_features(out).samples
    assert len(after) == 39
    assert torch.equal(after.raw, before.raw)
    torch.testing.assert_close(encoder.encode(after.raw), after.features, atol=1e-6, rtol=0)


def test_the_command_stores_pixels_if_asked(pta, photos, out):
    assert pta("extract", photos, "--model", "embedded", "--out", out, "--pixels").returncode == 0
    assert load_features(out).samples.raw.shape == (40, 1, 28, 28)


def test_the_command_stores_patches_if_asked_and_says_how_large_the_file_will_be(pta, photos, tmp_path):
    out = tmp_path / "f.safetensors"
    done = pta("extract", photos, "--model", "embedded", "--out", out, "--patches", "--views", "4")
    assert done.returncode == 0
    assert "f.safetensors will take 563.2 kB, and twice that while it is written" in done.stderr
    samples = load_features(out).samples
    assert (samples.views.shape[1], samples.patches.shape[1]) == (4, 49)


def test_the_command_stores_prompts_if_asked_and_etta_runs_on_them(pta, photos, out):
    command = ("extract", photos, "--model", "embedded", "--out", out, "--templates", "clip7")
    evaluate = ("eval", "--features", out, "--method", "etta")
    assert pta(*command).returncode == 0
    assert load_features(out).classifier.prompt_features is None
    refused = pta(*evaluate)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "f: etta needs features of the single prompts, which are missing; make them with" in refused.stderr
    renewed = pta(*command, "--prompts")
    assert "all encoded before, text features renewed" in renewed.stdout
    data = load_features(out)
    assert data.classifier.prompt_features.shape == (data.classifier.classes, 7, data.classifier.dim)
    assert pta(*evaluate).returncode == 0
    assert "all encoded before" in (again := pta(*command, "--prompts").stdout)
    assert "renewed" not in again
    few = pta(*command[:-1], "vanilla", "--prompts"), pta(*evaluate)
    assert [done.returncode for done in few] == [0, 2]
    assert "a share of 0.2 of 1 prompts per class is none; use more templates" in few[1].stderr


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"raw": True, "views": Views(4)}, r"pixels .* cannot be stored together with views"),
        ({"fast_decode": True, "views": Views(4)}, "full picture"),
        ({"batch": 0}, "from 1"),
    ],
)
def test_readings_that_make_no_sense_are_refused(wrong, complaint):
    with pytest.raises(InvalidParameter, match=complaint):
        Reading(**wrong)


def test_damaged_shards_and_leftovers_of_a_kill_are_done_again(encoder, photos, tmp_path, out):
    how = {"shard": 8, "reading": Reading(batch=4)}
    stop_at(35, encoder, photos, out, **how)
    shards = sorted(parts_of(out).glob("*.safetensors"))
    assert len(shards) == 4
    shards[1].write_bytes(shards[1].read_bytes()[:-50])
    (parts_of(out) / ".half-written").write_bytes(b"x")
    assert run(encoder, photos, out, on_error="skip", **how).encoded == 16
    whole = run(encoder, photos, tmp_path / "g.safetensors", on_error="skip")
    torch.testing.assert_close(
        load_features(out).samples.features, load_features(whole.path).samples.features, atol=1e-6, rtol=0
    )


def test_what_a_kill_after_the_last_write_leaves_behind_is_removed(encoder, photos, tmp_path, out):
    stop_at(3, encoder, photos, out)
    kept = shutil.copytree(parts_of(out), tmp_path / "kept")
    run(encoder, photos, out, on_error="skip")
    assert not parts_of(out).exists()
    kept.rename(parts_of(out))
    assert run(encoder, photos, out, on_error="skip").encoded == 0
    assert not parts_of(out).exists()


def test_names_that_are_no_text_are_no_obstacle(encoder, photos, out):
    odd = photos / "bag" / os.fsdecode(b"caf\xe9 \n.jpg")
    next(photos.glob("bag/*.jpg")).rename(odd)
    run(encoder, photos, out)
    assert f"bag/{odd.name}" in paths_in(out)


@pytest.mark.parametrize("record", [None, b"{}", b"[1]", b"no JSON"])  # as it is, and damaged
def test_an_unfinished_extraction_of_something_else_is_not_mixed_in(encoder, photos, out, record):
    stop_at(35, encoder, photos, out, reading=Reading(batch=8), shard=8)
    if record is not None:
        (parts_of(out) / "inputs.json").write_bytes(record)
    before = {path: path.read_bytes() for path in parts_of(out).iterdir()}
    with pytest.raises(StateMismatch, match="unfinished extraction of other samples"):
        run(encoder, photos, out, shard=8, reading=Reading(fast_decode=True))
    assert {path: path.read_bytes() for path in parts_of(out).iterdir()} == before


def test_an_extraction_that_has_finished_nothing_begins_anew(encoder, photos, out):
    stop_at(3, encoder, photos, out)
    assert run(encoder, photos, out, reading=Reading(batch=16), on_error="skip").encoded == 40
    assert read_about(out)["batch"] == 16


def test_batches_lie_on_a_grid_of_sample_numbers(encoder, photos, out, monkeypatch):
    sizes = []
    plain = EmbeddedEncoder.encode_unchecked
    monkeypatch.setattr(encoder, "encode_unchecked", lambda raw: sizes.append(len(raw)) or plain(encoder, raw))
    how = {"reading": Reading(batch=6), "shard": 13}
    stop_at(22, encoder, photos, out, **how)
    sizes.clear()
    run(encoder, photos, out, on_error="skip", **how)
    assert sizes == [6, 5, 6, 6, 4]  # 12 were done, and what cannot be read keeps its place


def test_a_feature_file_has_a_proper_name_and_place(encoder, photos, tmp_path):
    with pytest.raises(UnreadableFile, match=r"ends in \.safetensors"):
        run(encoder, photos, tmp_path / "f.npz")
    with pytest.raises(PtaError, match=r"the folder .* does not exist"):
        run(encoder, photos, tmp_path / "none" / "f.safetensors")


KILLED_BEFORE_A_SHARD_IS_FINISHED = """
import os, pathlib, signal
replaced, replace = [], pathlib.Path.replace
def counted(*paths):
    replaced.append(paths)
    return os.kill(os.getpid(), signal.SIGKILL) if len(replaced) == 8 else replace(*paths)
pathlib.Path.replace = counted
"""


def test_a_killed_extraction_keeps_what_it_has_finished(commands, pta, photos, tmp_path, out):
    call = ["extract", photos, "--model", "embedded", "--out", out, "--shard", "4", "--batch", "4"]
    commands.start(*call, folder=tmp_path, first=KILLED_BEFORE_A_SHARD_IS_FINISHED)
    assert commands.wait() == -signal.SIGKILL, commands.stderr.read()
    assert list(parts_of(out).glob(".*.safetensors.*"))  # a shard that was about to be finished
    assert not out.exists()
    kept = 4 * len(list(parts_of(out).glob("*.safetensors")))
    assert 0 < kept < 40
    record = json.loads(pta(*call, "--json", "-").stdout)
    assert (record["images"], record["encoded"]) == (40, 40 - kept)


def test_two_processes_do_not_write_into_one_extraction(encoder, photos, out):
    seen = []

    def interfere(done):
        seen.append(done)
        with pytest.raises(FileInUse, match=re.escape(f"another process is writing {out}")):
            run(encoder, photos, out)

    run(encoder, photos, out, on_progress=interfere)
    assert seen[-1] == len(load_features(out).samples) == 40
