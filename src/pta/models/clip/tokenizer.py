"""CLIP's tokenizer: lower-cased byte-pair encoding with 49,408 ids, from the packaged list of merges."""

import html
import lzma
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

from pta.errors import UnavailableModel, how_to_install

VOCABULARY = 49_408
START, END = VOCABULARY - 2, VOCABULARY - 1

# A word is a run of letters, a single digit, a run of anything else, or one of these English endings.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
_WORD_END = "</w>"
_STRAIGHT_QUOTES = str.maketrans(dict.fromkeys("\u02bc\u2018\u2019\u201a\u201b", "'") | dict.fromkeys("“”„‟", '"'))


def clip_ids(texts: Sequence[str]) -> list[list[int]]:
    """The token ids of each text, between start and end.

    >>> clip_ids(["A photo of a cat."])
    [[49406, 320, 1125, 539, 320, 2368, 269, 49407]]
    """
    encode = _byte_pairs().encode  # one by one: its batches start threads, which do not survive a fork
    return [[START, *encode(clean(text), add_special_tokens=False).ids, END] for text in texts]


def clean(text: str) -> str:
    """Lower case, single spaces, HTML entities resolved, straight quotes, composed accents.

    CLIP's own code also repairs text that was decoded wrongly (ftfy); that is left to whoever decoded it.

    >>> clean(" Men’s  T-shirt &amp;amp; hat ")
    "men's t-shirt & hat"
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # names of files may hold half characters
    text = html.unescape(html.unescape(text)).translate(_STRAIGHT_QUOTES)
    return " ".join(unicodedata.normalize("NFC", text).split()).lower()


def read_merges() -> list[tuple[str, str]]:
    """The 48,894 pairs that are joined, the most frequent first; bytes are spelled as in `byte_letters`."""
    packed = (resources.files("pta") / "assets" / "clip_merges.txt.xz").read_bytes()
    pairs = (line.split(" ") for line in lzma.decompress(packed).decode().splitlines())
    return [(left, right) for left, right in pairs]


def byte_letters() -> list[str]:
    """A printable letter for each byte, in the order of the vocabulary: printable Latin-1 first, as itself."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(byte) for byte in printable] + [chr(256 + n) for n in range(256 - len(printable))]


@lru_cache(maxsize=1)
def _byte_pairs() -> Any:
    try:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    except ImportError:
        raise UnavailableModel(f"CLIP's tokenizer needs tokenizers; {how_to_install('hf')}") from None
    letters, merges = byte_letters(), read_merges()
    words = [*letters, *(letter + _WORD_END for letter in letters), *(left + right for left, right in merges)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, end_of_word_suffix=_WORD_END))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer
