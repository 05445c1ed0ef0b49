"""Prompts: templates by name, descriptions, and the anchors that come of them, once."""

import json
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pta.data.prompts import (
    DoubtfulClassNames,
    DuplicateClassNames,
    build_classifier,
    class_texts,
    load_descriptions,
    load_templates,
)
from pta.errors import InvalidParameter

NAMES = ["t-shirt", "ankle_boot", "bag"]
SEVEN = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)
OWN = {
    "dtd": "{} texture.",
    "eurosat": "a centered satellite photo of {}.",
    "fgvc_aircraft": "a photo of a {}, a type of aircraft.",
    "food101": "a photo of {}, a type of food.",
    "oxford_flowers": "a photo of a {}, a type of flower.",
    "oxford_pets": "a photo of a {}, a type of pet.",
    "ucf101": "a photo of a person doing {}.",
}
ENSEMBLED = {
    **dict.fromkeys(["caltech101", "stanford_cars", "sun397", "imagenet", "imagenet_a", "imagenet_v2"], "clip7"),
    **dict.fromkeys(["imagenet_r", "imagenet_sketch"], "clip80"),
}


class CountingEncoder:
    """A model that turns a text into a direction of its own and keeps every call in mind."""

    scale, bias, dtype = 50.0, -3.0, torch.float32

    def __init__(self, fingerprint="one"):
        self.fingerprint = fingerprint
        self.calls = []

    @property
    def texts(self):
        return [text for call in self.calls for text in call]

    def encode_texts(self, texts):
        self.calls.append(list(texts))
        return torch.tensor(np.array([vector_of(text) for text in texts]), dtype=torch.float32)


def vector_of(text):
    """Of any length but one, to show that rows are scaled before the mean."""
    rng = np.random.default_rng(list(text.encode()))
    return rng.standard_normal(6) * rng.uniform(0.5, 2)


def slow_anchors(texts):
    """Each text to unit length, the plain mean, and that to unit length, in float64."""
    anchors = []
    for own in texts:
        rows = [vector_of(text) for text in own]
        mean = sum(row / np.sqrt((row**2).sum()) for row in rows) / len(rows)
        anchors.append(mean / np.sqrt((mean**2).sum()))
    return np.array(anchors)


# -- templates --------------------------------------------------------------------------------------------------------


def test_the_shipped_ensembles_are_complete():
    assert load_templates("vanilla") == ("a photo of a {}.",)
    assert load_templates("clip7") == SEVEN
    assert [len(set(load_templates(name))) for name in ("clip80", "ulip64")] == [80, 64]
    assert set(SEVEN) < set(load_templates("clip80"))
    assert load_templates("ulip64")[0] == "a point cloud model of {}."
    for name in ("vanilla", "clip7", "clip80", "ulip64"):
        assert all(template.count("{}") == 1 == template.count("{") for template in load_templates(name))
    assert load_templates("clip") == SEVEN  # for a user's own classes
    assert load_templates("coop") == load_templates("vanilla")


@pytest.mark.parametrize("dataset", [*OWN, *ENSEMBLED])
def test_the_mixture_of_the_paper_and_that_of_coop_depend_on_the_dataset(dataset):
    if dataset in OWN:
        assert load_templates("clip", dataset) == load_templates("coop", dataset) == (OWN[dataset],)
    else:
        assert load_templates("clip", dataset) == load_templates(ENSEMBLED[dataset])
        assert load_templates("coop", dataset) == load_templates("vanilla")


def test_a_users_templates_come_from_a_file_or_from_the_name_itself(tmp_path):
    lines, listed = tmp_path / "mine.txt", tmp_path / "mine.json"
    lines.write_text("a {} on a shelf.\n\n  one {}, seen from above. \n")
    listed.write_text(json.dumps(["a {} on a shelf.", "one {}, seen from above."]))
    expected = ("a {} on a shelf.", "one {}, seen from above.")
    assert load_templates(str(lines)) == load_templates(str(listed)) == expected
    assert load_templates("a {} on a shelf.", "dtd") == expected[:1]


@pytest.mark.parametrize(
    ("name", "dataset", "complaint"),
    [
        ("vanila", None, "no templates are called 'vanila'; did you mean 'vanilla'?"),
        ("clip", "dtdd", "no templates for a dataset 'dtdd'; did you mean 'dtd'?"),
        ("nothing.txt", None, "no such template file: nothing.txt"),
        ("a {} or a {}.", None, "must contain {} exactly once"),
        ("a {name}.", None, "must contain {} exactly once"),
        ("a {} of {0}.", None, "and no other braces"),
        ("a {{}}.", None, "must contain {} exactly once"),
    ],
)
def test_a_template_that_cannot_be_used_is_one_clear_line(name, dataset, complaint):
    assert complaint in refusal(load_templates, name, dataset)


@pytest.mark.parametrize(
    ("read", "name", "content", "complaint"),
    [
        (load_templates, "mine.txt", b"a photo of a cat.\n", "mine.txt: the template 'a photo of a cat.' must contain"),
        (load_templates, "mine.txt", b" \n", "holds no template"),
        (load_templates, "mine.txt", b"\xff\xfe{}", "is not UTF-8"),
        (load_templates, "mine.txt", b"x" * (2**20 + 1), "at most 1,048,576"),
        (load_templates, "mine.json", b"[", "is not JSON"),
        (load_templates, "mine.json", b"[" * 100_000, "is not JSON"),
        (load_templates, "mine.json", b'{"a": 1}', "must hold a JSON list"),
        (load_templates, "mine.json", b"[3]", "must be a list of texts, got [3]"),
        (load_descriptions, "mine.json", b"[1]", "must hold a JSON object"),
        (load_descriptions, "mine.json", b"{}", "must hold a JSON object"),
        (load_descriptions, "mine.json", b"{", "is not JSON"),
        (load_descriptions, "mine.json", b'{"cat": "It purrs."}', "'cat' must have a list of sentences"),
        (load_descriptions, "mine.json", b'{"cat": []}', "'cat' must have a list of sentences"),
        (load_descriptions, "mine.json", b'{"cat": [3]}', "'cat' must have a list of sentences"),
        (load_descriptions, "mine.json", b'{"cat": [" "]}', "none of them blank"),
        (load_descriptions, "mine.json", b'{"sea_lion": ["A."], "sea lion": ["B."]}', "two keys are the class 'sea li"),
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path, read, name, content, complaint):
    path = tmp_path / name
    path.write_bytes(content)
    said = refusal(read, str(path))
    assert complaint in said
    assert str(path) in said


# -- texts ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.text(min_size=1).filter(lambda name: name.replace("_", " ").strip()), min_size=2, max_size=5),
    st.lists(st.sampled_from(SEVEN), min_size=1, max_size=4),
)
def test_a_text_is_the_template_with_the_cleaned_name_whatever_the_name_is(names, templates):
    texts = class_texts(names, templates)
    assert len(texts) == len(names)
    for name, own in zip(names, texts, strict=True):
        halves = [template.split("{}") for template in templates]
        assert own == [before + name.replace("_", " ") + after for before, after in halves]


def test_descriptions_follow_the_templates_and_are_found_by_the_cleaned_name(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"t-shirt": ["It has short sleeves."], "ankle_boot": ["It has laces.", "It is high."]}))
    descriptions = load_descriptions(path)
    assert class_texts(["ankle boot", "t-shirt"], ["a {}."], descriptions) == [
        ["a ankle boot.", "It has laces.", "It is high."],
        ["a t-shirt.", "It has short sleeves."],
    ]
    assert class_texts(["ankle_boot", "t-shirt"], [], descriptions)[1] == ["It has short sleeves."]


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ([], "at least two class names, got 0"),
        (["cat"], "at least two class names, got 1"),
        (["cat", 3], "class name 1 must be a string, not 3"),
        (["cat", "_ "], "class name 1 is blank"),
        (["caf\udce9", "cat"], r"class name 0, 'caf\\udce9', has bytes that are not UTF-8; rename it"),
        ("cat", "must be a list of strings"),
    ],
)
def test_names_that_make_no_classifier_are_one_clear_line(names, complaint):
    with pytest.raises(InvalidParameter, match=complaint):
        build_classifier(CountingEncoder(), names, SEVEN)


@pytest.mark.parametrize(
    ("templates", "descriptions", "complaint"),
    [
        ([], None, "at least one template or description"),
        ("a {}.", None, "must be a list"),
        ([], dict.fromkeys(["t-shirt", "ankle boot", "bag"], "It is."), "list of sentences, not one string"),
        (["{}"], {"t-shirt": ["A."], "ankle boots": ["B."]}, "no class 'ankle boot'; did you mean 'ankle boots'"),
        (["{}"], {str(number): ["A."] for number in range(1000)}, r"no class 't-shirt'; known: 0, 1, .*, 19, …$"),
    ],
)
def test_texts_that_cannot_be_made_are_one_clear_line(templates, descriptions, complaint):
    with pytest.raises(InvalidParameter, match=complaint):
        class_texts(NAMES, templates, descriptions)


# -- anchors ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 7), st.booleans())
def test_anchors_equal_the_slow_ones(count, described):
    descriptions = {"t-shirt": ["A."], "ankle boot": ["A.", "B.", "C."], "bag": ["D."]} if described else None
    found = build_classifier(CountingEncoder(), NAMES, SEVEN[:count], descriptions=descriptions)
    texts = class_texts(NAMES, SEVEN[:count], descriptions)
    assert np.abs(found.anchors.numpy() - slow_anchors(texts)).max() < 1e-6
    assert found.prompts == tuple(map(tuple, texts))
    assert (found.class_names, found.scale, found.bias) == (tuple(NAMES), 50.0, -3.0)


@pytest.mark.parametrize("cached", [False, True])
def test_the_features_of_single_prompts_are_kept_if_asked_and_anchors_are_their_mean(cached, tmp_path):
    cache = tmp_path if cached else None
    build_classifier(CountingEncoder(), NAMES, SEVEN, cache=cache)
    found = build_classifier(CountingEncoder(), NAMES, SEVEN, cache=cache, keep_prompts=True)
    assert found.prompt_features.shape == (3, 7, 6)
    torch.testing.assert_close(found.prompt_features.norm(dim=2), torch.ones(3, 7))
    means = torch.nn.functional.normalize(found.prompt_features.mean(dim=1))
    torch.testing.assert_close(means, found.anchors, atol=1e-6, rtol=0)
    assert build_classifier(CountingEncoder(), NAMES, SEVEN, cache=cache).prompt_features is None


def test_of_unequal_numbers_of_texts_each_class_keeps_as_many_as_all_have():
    descriptions = {"t-shirt": ["A.", "B."], "ankle boot": ["A.", "B.", "C."], "bag": ["D.", "E.", "F."]}
    found = build_classifier(CountingEncoder(), NAMES, SEVEN[:4], descriptions=descriptions, keep_prompts=True)
    assert found.prompt_features.shape == (3, 6, 6)
    for number, texts in enumerate(class_texts(NAMES, SEVEN[:4], descriptions)):
        for row, text in zip(found.prompt_features[number], texts[:6], strict=True):
            expected = vector_of(text) / np.linalg.norm(vector_of(text))
            np.testing.assert_allclose(row, expected, atol=1e-6)


def test_a_text_of_several_classes_is_encoded_once_and_progress_is_told():
    encoder, told = CountingEncoder(), []
    descriptions = {name.replace("_", " "): ["Something to wear.", f"A {name}."] for name in NAMES}
    build_classifier(encoder, NAMES, ["a {}."], descriptions=descriptions, on_progress=lambda *done: told.append(done))
    assert len(encoder.texts) == len(set(encoder.texts)) == 3 + 1 + 3
    assert len(encoder.calls) == 1
    assert told == [(7, 7)]


def test_many_texts_go_in_large_batches():
    encoder, told = CountingEncoder(), []
    names = [f"class {number}" for number in range(200)]
    found = build_classifier(encoder, names, SEVEN, on_progress=lambda *done: told.append(done))
    assert told == [(1024, 1400), (1400, 1400)]
    assert [len(call) for call in encoder.calls] == [1024, 376]
    assert np.abs(found.anchors.numpy() - slow_anchors(class_texts(names, SEVEN))).max() < 1e-6


def test_two_classes_of_one_name_are_warned_about_and_tie():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_classifier(CountingEncoder(), NAMES, ["a {}."])
    with pytest.warns(DuplicateClassNames, match="several classes are called 'crane'") as caught:
        found = build_classifier(CountingEncoder(), ["crane", "dog", "crane"], ["a {}."])
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert caught[0].filename == __file__
    assert torch.equal(found.anchors[0], found.anchors[2])
    with pytest.warns(DuplicateClassNames, match="'sea lion'"):
        build_classifier(CountingEncoder(), ["sea_lion", "sea lion"], ["a {}."])


def test_names_that_differ_in_case_alone_are_warned_about_unless_sentences_tell_them_apart():
    with pytest.warns(DuplicateClassNames, match="called 'Coat', 'coat': their texts differ at most in case") as caught:
        build_classifier(CountingEncoder(), ["Coat", "bag", "coat"], ["a {}."])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    sentences = {"Polish": ["A language."], "polish": ["A cream."]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_classifier(CountingEncoder(), ["Polish", "polish"], ["a {}."], descriptions=sentences)


@pytest.mark.parametrize(
    "first", ["class", "Name", "labels", "classnames", "class_name", "Category", "id,name", "# pets"]
)
def test_a_first_name_that_looks_like_a_heading_is_warned_about(first):
    with pytest.warns(
        DoubtfulClassNames, match=f"{first!r} was taken as a class, but looks like the heading"
    ) as caught:
        build_classifier(CountingEncoder(), [first, "cat", "dog"], ["a {}."])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_classifier(CountingEncoder(), ["cat", "label", "name tag"], ["a {}."])


# -- the cache --------------------------------------------------------------------------------------------------------


def test_a_second_call_encodes_nothing_and_gives_the_same_bits(tmp_path):
    encoder = CountingEncoder()
    one = build_classifier(encoder, NAMES, SEVEN, cache=tmp_path / "deep" / "cache")
    before = len(encoder.calls)
    other = build_classifier(encoder, NAMES, SEVEN, cache=tmp_path / "deep" / "cache")
    assert len(encoder.calls) == before == 1
    assert one.fingerprint == other.fingerprint
    assert torch.equal(one.anchors, other.anchors)


def test_what_anchors_depend_on_is_what_they_are_kept_by(tmp_path):
    def encodes(names=NAMES, templates=SEVEN, fingerprint="one", dtype=torch.float32, descriptions=None):
        encoder = CountingEncoder(fingerprint)
        encoder.dtype = dtype
        build_classifier(encoder, names, templates, descriptions=descriptions, cache=tmp_path)
        return bool(encoder.calls)

    described = {"t-shirt": ["A.", "B."], "ankle boot": ["C."], "bag": ["D."]}
    divided = {"t-shirt": ["A."], "ankle boot": ["B.", "C."], "bag": ["D."]}  # the same texts
    assert encodes()
    assert encodes(fingerprint="other")
    assert encodes(dtype=torch.float16)
    assert encodes(names=NAMES[::-1])
    assert encodes(templates=SEVEN[:6])
    assert encodes(templates=[], descriptions=described)
    assert encodes(templates=[], descriptions=divided)
    assert not encodes()
    assert not encodes(names=[name.replace("_", " ") for name in NAMES])  # the same texts
    assert not encodes(templates=[], descriptions=described)


@pytest.mark.parametrize("damage", [b"", b"nonsense", "cut", "foreign"])
def test_a_damaged_file_is_ignored_and_written_anew(tmp_path, damage):
    encoder = CountingEncoder()
    one = build_classifier(encoder, NAMES, SEVEN, cache=tmp_path)
    (kept,) = tmp_path.rglob("*.safetensors")
    whole = kept.read_bytes()
    if damage == "foreign":  # a sound file, of other texts
        build_classifier(encoder, NAMES, SEVEN[:2], cache=tmp_path / "other")
        (foreign,) = (tmp_path / "other").rglob("*.safetensors")
        kept.write_bytes(foreign.read_bytes())
    else:
        kept.write_bytes(whole[:-5] if damage == "cut" else damage)
    encoder.calls.clear()
    other = build_classifier(encoder, NAMES, SEVEN, cache=tmp_path)
    assert len(encoder.calls) == 1
    assert torch.equal(one.anchors, other.anchors)
    assert kept.read_bytes() == whole


def test_a_folder_that_cannot_be_written_to_only_means_that_nothing_is_kept(tmp_path):
    (tmp_path / "file").write_text("in the way")
    encoder = CountingEncoder()
    for _ in range(2):
        found = build_classifier(encoder, NAMES, SEVEN, cache=tmp_path / "file")
        assert found.classes == 3
    assert len(encoder.calls) == 2


def test_without_a_cache_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("PTA_CACHE", str(tmp_path))
    build_classifier(CountingEncoder(), NAMES, SEVEN)  # without a cache
    assert list(tmp_path.iterdir()) == []
