"""What the text tower reads in training: captions made of openings, adjectives, nouns and endings."""

from collections.abc import Sequence

import numpy as np

from pta.models.packaged.embedded import training_nouns

NOUNS = training_nouns("embedded")
"""For each class name, other names of the same thing."""

OPENINGS = (
    "",
    "a ",
    "the ",
    "my ",
    "one ",
    "some ",
    "a photo of a ",
    "a photo of the ",
    "a photo of one ",
    "photo of my ",
    "an image of a ",
    "an image of some ",
    "image: ",
    "this is a ",
    "this is the ",
    "this image shows a ",
    "there is a ",
    "that is my ",
    "it is a ",
    "look at this ",
    "look at the ",
    "a drawing of a ",
    "a grey picture of the ",
    "a picture showing a ",
    "a close-up of a ",
    "a close-up photo of the ",
    "a low resolution photo of a ",
    "a blurry view of the ",
    "a product photo of a ",
    "a studio photo of a ",
    "we sell this ",
    "for sale: ",
    "i bought a ",
    "she has a ",
    "he likes the ",
    "they wanted this ",
    "an item of fashion, a ",
    "an example of a ",
    "the category is ",
    "a thumbnail with a ",
)

ADJECTIVES = ("", "", "", "", "new ", "old ", "plain ", "nice ", "small ", "large ", "modern ", "dark ")
"""Words that say nothing about the class; the empty one, four times, makes most captions go without."""

ENDINGS = (
    "",
    "",
    ".",
    ".",
    "!",
    " in grey.",
    " on black.",
    " on a dark background.",
    " from an online shop.",
    ", a piece of clothing.",
    " to wear.",
    " in the shop window",
    ", seen from the front.",
    ", centred.",
)

VALIDATION_TEMPLATES = ("a photograph of a {}.", "what we have here is a {}", "a small grey image of one {}.")
"""For choices made on the validation images; as unknown to the text tower as the templates of the package."""


def training_templates(openings: Sequence[str] = OPENINGS, endings: Sequence[str] = ENDINGS) -> set[str]:
    """Every template that `draw_captions` can use, with the noun left open."""
    return {f"{o}{a}{{}}{e}" for o in openings for a in ADJECTIVES for e in endings}


def draw_captions(
    name: str,
    synonyms: Sequence[str],
    count: int,
    rng: np.random.Generator,
    *,
    openings: Sequence[str] = OPENINGS,
    endings: Sequence[str] = ENDINGS,
) -> list[str]:
    """Random captions for one class; every other one uses the class name itself, the rest its synonyms."""

    def caption(i: int) -> str:
        noun = name if i % 2 == 0 else rng.choice(synonyms)
        return f"{rng.choice(openings)}{rng.choice(ADJECTIVES)}{noun}{rng.choice(endings)}"

    return [caption(i) for i in range(count)]
