"""CLIP's tokenizer, against known ids and against a slow byte-pair encoding written from its description."""

import sys
import unicodedata
from itertools import pairwise

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from pta.errors import UnavailableModel
from pta.models.clip.tokenizer import END, START, VOCABULARY, byte_letters, clean, clip_ids, read_merges

KNOWN = {  # given by the tokenizer of open_clip, which is OpenAI's
    "": [],
    "a photo of a cat.": [320, 1125, 539, 320, 2368, 269],
    "itap of a {}.": [529, 2728, 539, 320, 90, 92, 269],
    "a photo of the 2012 Audi A4, a type of car.": [
        *[320, 1125, 539, 518, 273, 271, 272, 273, 10277, 320, 275, 267, 320, 3877, 539, 1615, 269]
    ],
    "I'll've it's 'S don't": [328, 1342, 1200, 585, 568, 568, 847, 713],
    "naïve café Ångström": [1097, 35689, 563, 15304, 23176, 10352, 807, 7255, 332],
    "外套 写真": [23170, 244, 29290, 501, 44653, 33440, 509],
    "🙂🙂 ok": [32006, 14860, 2481],
    "&lt;b&gt; &amp;amp;": [283, 321, 285, 261],
    "!!!'s": [11194, 262, 338],
    "ⅷ ½ ²": [158, 227, 371, 33613, 41175],
}

MERGES = {pair: rank for rank, pair in enumerate(read_merges())}
TOKENS = [letter + end for end in ("", "</w>") for letter in byte_letters()] + ["".join(pair) for pair in MERGES]
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]  # spelled as themselves, and come first
SPELLING = dict(zip(sorted(range(256), key=lambda byte: byte not in PRINTABLE), byte_letters(), strict=True))
WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")


@pytest.mark.parametrize("text", KNOWN)
def test_known_texts_have_the_ids_of_the_released_tokenizer(text):
    assert clip_ids([text]) == [[START, *KNOWN[text], END]]


def slow_ids(text):
    """Join the pair that comes first in the list of merges, wherever it stands, until no pair is in the list."""
    ids = []
    for word in WORDS.findall(clean(text)):
        symbols = [SPELLING[byte] for byte in word.encode()]
        symbols[-1] += "</w>"
        while pairs := [pair for pair in pairwise(symbols) if pair in MERGES]:
            best, joined, rest = min(pairs, key=MERGES.__getitem__), [], symbols
            while rest:
                take = 2 if tuple(rest[:2]) == best else 1
                joined.append("".join(rest[:take]))
                rest = rest[take:]
            symbols = joined
        ids += [TOKENS.index(symbol) for symbol in symbols]
    return ids


def settled(character):
    """Whether every table of Unicode agrees on what kind of character it is; ſ and ͅ are s and ι by case only."""
    return unicodedata.category(character) not in ("Cn", "Cs") and character not in "\u017f\u0345"


CHARACTERS = st.characters(exclude_categories=["Cn", "Cs"]).filter(settled)
FREQUENT = ["a", "photo", "of", "THE", "it's", "I'll", "naïve", "jekyll", "2012", "&amp;", ",.", "!!!", ":)", ""]
ENGLISH = st.lists(st.sampled_from(FREQUENT) | st.text("abcdefghijklmnopqrstuvwxyz'.-", max_size=12)).map(" ".join)


@given(ENGLISH | st.text(st.characters(codec="ascii")) | st.text(CHARACTERS))
def test_every_text_has_the_ids_of_a_slow_byte_pair_encoding(text):
    assert clip_ids([text]) == [[START, *slow_ids(text), END]]


@given(st.text())
def test_whatever_the_text_ids_are_in_the_vocabulary_and_the_ends_only_at_the_ends(text):
    (ids,) = clip_ids([text])
    assert ids[0] == START
    assert ids[-1] == END
    assert all(0 <= number < START for number in ids[1:-1])


def test_the_vocabulary_has_49408_different_tokens():
    assert len(set(TOKENS)) == len(TOKENS) == VOCABULARY - 2


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("A  Photo\tof\n a\u00a0CAT. ", "a photo of a cat."),
        ("a&amp;amp;b", "a&b"),
        ("the men\u2019s \u201cbest\u201d", 'the men\'s "best"'),
        ("cafe\u0301", "caf\u00e9"),
    ],
    ids=["case and space", "entities", "quotes", "accents"],
)
def test_what_is_written_differently_and_means_the_same_has_the_same_ids(written, meant):
    assert clip_ids([written]) == clip_ids([meant])


def test_the_markers_typed_as_text_are_plain_text():
    assert clip_ids(["<|endoftext|> a"]) == [[START, 27, 347, 40786, 4160, 91, 285, 320, END]]


def test_half_a_character_from_a_file_name_does_no_harm():
    assert clip_ids(["caf\udce9"]) == clip_ids(["caf\ufffd"])


def test_without_tokenizers_the_message_says_what_to_install(monkeypatch):
    from pta.models.clip import tokenizer

    tokenizer._byte_pairs.cache_clear()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UnavailableModel, match=r"pip install 'pta-vlm\[hf\]'"):
        clip_ids(["a cat"])
