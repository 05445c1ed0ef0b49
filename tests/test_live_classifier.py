"""`pta.Classifier` and `predict_stream`: pictures to answers in Python, one by one, in batches and as a stream."""

import zlib

import numpy as np
import pytest
import torch
from openai_checkpoints import random_state
from photos import FASHION, write_photos
from PIL import Image

import pta
from pta.core.samples import Samples
from pta.data.open import find_samples
from pta.data.views import make_views
from pta.door.files import load_tensors
from pta.errors import InvalidParameter, PtaError, StateMismatch, UnreadableFile, UnreadSample
from pta.methods import create_adapter
from pta.models import EmbeddedEncoder
from pta.models.clip.encoder import ClipEncoder
from pta.run.classifier import AnswerBatch, answer_numbers
from pta.run.predict import predict_stream
from pta.run.reading import Reading
from pta.run.row_file import RowFile
from pta.run.saved_stream import Progress, SavedStream

NO_BLOCKS = r"image tower of .* cannot be run block by block"


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """The files of 60 photographs."""
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder, 60)
    return find_samples([folder])


def make(**how):
    return pta.Classifier("embedded", FASHION.class_names, cache=None, **how)


@pytest.fixture
def classifier():
    return make()


@pytest.fixture
def unchanged(classifier):
    """Asserts that the classifier has learned nothing meanwhile."""
    before = classifier.adapter.snapshot().tensors
    yield
    assert_state(classifier.adapter, before)
    assert classifier.adapter.position == 0


def assert_state(adapter, expected):
    assert all(torch.equal(tensor, expected[name]) for name, tensor in adapter.state().items())


def test_a_method_that_chooses_prompts_gets_them(tmp_path):
    classifier = make(method="etta", templates="clip7")
    assert [answer.label for answer in classifier(list(FASHION.images[:2]))] == ["ankle boot", "pullover"]
    classifier.save(tmp_path / "state.safetensors")
    other = make(method="etta", templates="clip7")
    other.load(tmp_path / "state.safetensors")
    assert other.adapter.position == 2
    assert classifier.classifier.prompt_features.shape[:2] == (10, 7)
    assert make(method="etta", prompts="one").classifier.prompt_features is None
    assert make().classifier.prompt_features is None


def test_prior_and_calibration_are_parameters_and_saved_with_the_method(tmp_path):
    around = {"prior": "local", "calibration": "matched"}
    classifier, loaded = make(method="tda", **around), make(method="tda")
    classifier(list(FASHION.images[:20]))
    classifier.save(tmp_path / "state.safetensors")
    loaded.load(tmp_path / "state.safetensors")
    assert around.items() <= loaded.adapter.parameters.items()
    later = list(FASHION.images[20:30])
    assert [one.probability for one in loaded(later)] == [one.probability for one in classifier(later)]


def by_hand(paths, method, views):
    """Pictures one by one, with nothing but the encoder and the adapter: logits and zero-shot logits."""
    encoder = EmbeddedEncoder.load()
    classifier = pta.Classifier(encoder, FASHION.class_names, cache=None).classifier
    adapter = create_adapter(method, classifier, model=encoder)
    for path in paths:
        picture = Image.open(path)
        plain, seen = encoder.encode(encoder.preprocess(picture)), None
        if views is not None:
            seed = (zlib.crc32(picture.tobytes()),)
            seen = encoder.encode(make_views(picture, encoder.preprocess, count=views, mode="crops", seed=seed))[None]
        raw = torch.from_numpy(encoder.preprocess.pixels(picture))[None]
        yield adapter.step(Samples.of(plain, views=seen, raw=raw))[0], classifier.logits(plain)[0]


@pytest.mark.parametrize(
    ("method", "count", "views", "logit_factor"),
    [("pta", 60, None, 0.5), ("wpta", 60, None, 1.0), ("zero", 6, 8, 1.0), ("tca", 12, None, 1.0)],
)
@pytest.mark.parametrize("raw", [False, pytest.param(True, marks=pytest.mark.extensive)])
def test_answers_are_those_of_encoder_and_adapter_by_hand(samples, tmp_path, method, count, views, logit_factor, raw):
    paths = [sample.path for sample in samples[:count]]
    how = {"method": method, "raw_probability": raw, **({} if views is None else {"views": views})}
    classifier, streamed, other = make(**how), make(**how), make(**how | {"method": "clip"})
    first = classifier(paths[: count // 2])
    classifier.save(tmp_path / "state.safetensors")
    other.load(tmp_path / "state.safetensors")  # of whichever method
    listed = [*first, *other(paths[count // 2 :])]
    batches = predict_stream(streamed, samples[:count], Reading(batch=7))
    for answers in (listed, [answer for part in batches for answer in part.answers]):
        for answer, (logits, zero_shot) in zip(answers, by_hand(paths, method, views), strict=True):
            probabilities = (logits.double() * (1.0 if raw else logit_factor)).softmax(0)
            assert answer.label == FASHION.class_names[int(logits.argmax())]
            assert answer.zero_shot_label == FASHION.class_names[int(zero_shot.argmax())]
            assert answer.probability == pytest.approx(float(probabilities.max()), abs=1e-4)
            assert answer.entropy == pytest.approx(float(torch.special.entr(probabilities).sum()), abs=1e-3)


@pytest.mark.usefixtures("unchanged")
def test_looking_without_learning_changes_nothing_and_bytes_are_a_picture_too(samples, classifier):
    path = samples[0].path
    assert classifier(path.read_bytes(), learn=False) == classifier(path, learn=False)


def test_the_pipeline_has_the_shape_that_transformers_gives(classifier):
    classify = classifier.pipeline(top_k=3)
    pictures = [Image.fromarray(image) for image in FASHION.images[:2]]
    one = classify(pictures[0])
    assert [set(score) for score in one] == [{"label", "score"}] * 3
    assert one[0]["score"] >= one[1]["score"] >= one[2]["score"]
    assert [len(scores) for scores in classify(pictures, top_k=1)] == [1, 1]


def test_probabilities_and_entropy_are_those_of_the_adapted_logits():
    logits, zero_shot = torch.tensor([[2.0, 0.0, 1.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    (answer,) = AnswerBatch(answer_numbers(logits, logits.softmax(dim=1), zero_shot, top=2), ["a", "b", "c"])
    p = np.exp([2.0, 0.0, 1.0]) / np.exp([2.0, 0.0, 1.0]).sum()
    assert answer.top == (("a", pytest.approx(p[0])), ("c", pytest.approx(p[2])))
    assert answer.entropy == pytest.approx(-(p * np.log(p)).sum())
    assert (answer.label, answer.zero_shot_label, answer.changed) == ("a", "b", True)
    assert answer.zero_shot_probability == pytest.approx(np.e / (np.e + 2))


def test_an_improbable_answer_is_rejected_and_learned_from_all_the_same():
    plain, strict = make(), make(reject_below=0.9)
    expected, found = plain(list(FASHION.images[:30])), strict(list(FASHION.images[:30]))
    assert [answer.rejected for answer in found] == [answer.probability < 0.9 for answer in expected]
    assert {answer.rejected for answer in found} == {True, False}
    assert [answer.label for answer in found] == [answer.label for answer in expected]
    assert not any(answer.rejected for answer in expected)
    assert_state(strict.adapter, plain.adapter.snapshot().tensors)


@pytest.mark.parametrize("method", ["wpta", "dota"])
def test_samples_below_the_threshold_are_held_in_a_batch_as_one_by_one(method):
    at_once, looped, plain = (make(method=method, reject_holds=hold) for hold in (0.6, 0.6, None))
    samples = torch.cat(
        [at_once.encoder.encode(at_once.encoder.preprocess(Image.fromarray(one))) for one in FASHION.images[:40]]
    )
    found = at_once.answer(samples)
    expected = [answer for row in samples for answer in looped.answer(row[None])]
    assert [answer.held for answer in found] == [answer.zero_shot_probability < 0.6 for answer in found]
    assert {answer.held for answer in found} == {True, False}
    assert [(answer.label, answer.held) for answer in found] == [(answer.label, answer.held) for answer in expected]
    require_close(at_once, looped)
    plain.answer(samples[[not answer.held for answer in found]])
    require_close(at_once, plain)


def require_close(one, other):
    for name, tensor in one.adapter.state().items():
        torch.testing.assert_close(tensor, other.adapter.state()[name], msg=name)


def test_a_sample_with_a_label_is_learned_whatever_zero_shot_says():
    holding, plain = make(reject_holds=1.0), make()
    pictures = list(FASHION.images[:4])
    answers = holding(pictures, labels=["bag", None, None, "coat"])
    assert [answer.held for answer in answers] == [False, True, True, False]
    plain([pictures[0], pictures[3]], labels=["bag", "coat"])
    require_close(holding, plain)


def test_nothing_is_held_where_nothing_is_learned():
    holding = make(reject_holds=1.0)
    assert not holding(FASHION.images[0], learn=False).held


def test_classes_are_known_and_forgotten_by_name(classifier):
    assert classifier.classes == tuple(FASHION.class_names)
    classifier(list(FASHION.images[:40]))
    assert "10 classes" in repr(classifier)
    assert "wpta, 40 samples learned" in repr(classifier)
    kept = classifier.adapter.sums.clone()
    kept[classifier.classes.index("bag")] = 0
    classifier.reset(["bag"])
    assert torch.equal(classifier.adapter.sums, kept)
    for wrong, complaint in ((["bags"], "did you mean 'bag'"), ("bag", "must be a list of texts"), ([3], "list")):
        with pytest.raises(InvalidParameter, match=complaint):
            classifier.reset(wrong)
    assert torch.equal(classifier.adapter.sums, kept)
    classifier.reset()
    assert_state(classifier.adapter, make().adapter.state())


@pytest.mark.parametrize(
    ("wrong", "mistake", "complaint"),
    [
        ({"classes": ["cat"]}, InvalidParameter, "at least two"),
        ({"classes": "cat"}, InvalidParameter, "list of strings"),
        ({"templates": "no place for a name"}, PtaError, "no place for a name"),
        ({"method": "none"}, PtaError, "no method is called 'none'"),
        ({"hh": 3}, InvalidParameter, "wpta has no parameter 'hh'"),
        ({"reject_below": 2}, InvalidParameter, "reject_below must be a number from 0 to 1"),
        ({"reject_holds": True}, InvalidParameter, "reject_holds must be a number from 0 to 1"),
        ({"reject_below": 0.5, "raw_probability": True}, InvalidParameter, "leave out raw_probability"),
        ({"model": ClipEncoder(random_state("RN50"), quick_gelu=True), "method": "tca"}, InvalidParameter, NO_BLOCKS),
    ],
)
def test_mistakes_are_pta_errors(wrong, mistake, complaint):
    with pytest.raises(mistake, match=complaint):
        pta.Classifier(**{"model": "embedded", "classes": ["cat", "dog"], "cache": None} | wrong)


@pytest.mark.usefixtures("unchanged")
def test_a_refusal_learns_nothing(classifier):
    with pytest.raises(UnreadSample):
        classifier([FASHION.images[0], "nowhere.jpg"])
    for odd in (torch.ones(2, 7), torch.tensor(1.0), None, 5, object()):
        with pytest.raises(PtaError):
            classifier.answer(odd)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("top", [0, -1, "x", 1.5, None, True])
def test_a_number_of_answers_that_makes_no_sense_is_refused_at_once(top, samples, classifier):
    for call in (
        lambda: classifier(FASHION.images[0], top=top),
        lambda: classifier([], top=top),
        lambda: classifier.pipeline(top_k=top),
        lambda: classifier.pipeline()(FASHION.images[0], top_k=top),
    ):
        with pytest.raises(InvalidParameter, match="must be a whole number"):
            call()


def test_a_state_that_cannot_be_used_is_refused_and_changes_nothing(tmp_path):
    make(method="mta").save(tmp_path / "mta.safetensors")
    pta.Classifier("embedded", ["cat", "dog"], cache=None).save(tmp_path / "pets.safetensors")
    few = make(views=4)
    few(FASHION.images[0])
    adapter, learned = few.adapter, few.adapter.snapshot().tensors
    for wrong, mistake in {"nowhere": UnreadableFile, "mta": PtaError, "pets": StateMismatch}.items():
        with pytest.raises(mistake):
            few.load(tmp_path / f"{wrong}.safetensors")
        assert few.adapter is adapter
        assert_state(adapter, learned)


def test_when_a_batch_is_given_out_exactly_that_has_been_learned(samples, classifier):
    twin = make()
    batches = predict_stream(classifier, samples, Reading(batch=16))
    given_out = len(next(batches).answers) + len(next(batches).answers)  # and more is being decoded
    twin([sample.path for sample in samples[:given_out]])
    for name, tensor in twin.adapter.state().items():
        torch.testing.assert_close(getattr(classifier.adapter, name), tensor, atol=1e-5, rtol=1e-5)


def test_batches_end_at_the_same_samples_wherever_a_stream_goes_on(samples, classifier):
    whole = [part.keys for part in predict_stream(classifier, samples, Reading(batch=16))]
    assert list(map(len, whole)) == [2, 16, 16, 16, 10]
    for first in (2, 5, 18, 34):
        rest = [part.keys for part in predict_stream(classifier, samples[first:], Reading(batch=16), first=first)]
        assert rest[1:] == whole[-len(rest) + 1 :]
        assert rest[0] == whole[-len(rest)][-len(rest[0]) :]


def test_a_state_that_can_no_longer_be_saved_stops_the_stream_and_says_what_is_lost(samples, tmp_path, classifier):
    (tmp_path / "kept").mkdir()
    rows = RowFile(tmp_path / "rows.csv", top=1)
    stream = SavedStream(classifier, tmp_path / "kept" / "state.safetensors", rows, Progress(), every=0)
    batches = predict_stream(classifier, samples, Reading(batch=8), stopping=stream.save_if_due)

    def label():
        with stream:
            for number, part in enumerate(batches):
                stream.add(part)
                if number == 2:
                    (tmp_path / "kept").rename(tmp_path / "gone")

    complaint = r"cannot write .*: the folder .* does not exist; the state after the last 8 samples was not saved$"
    with pytest.raises(UnreadableFile, match=complaint):
        label()
    assert load_tensors(tmp_path / "gone" / "state.safetensors", kind="state")[1]["position"] == 1 + 8
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1 + 1 + 8 + 8  # and the header
    rows.close()
