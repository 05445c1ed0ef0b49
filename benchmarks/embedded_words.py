"""Which class names the packaged models should warn about: two measures, on words that chose and on words that check.

    python benchmarks/embedded_words.py        writes benchmarks/results/embedded-words.csv

A word is read rightly if its text feature is nearest to that of its own class. A warning is right for every other word,
clothing or not. The measure `cosine` warns where the best cosine with a name of the training is below a threshold, the
one with the fewest errors on the words that chose; `clothing` has the threshold that tells clothing best from the
others. `nouns` is the package's: it warns if no noun of the training is in the word. The model of clouds takes the rule
over, so all its words check.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from result_file import RESULTS, Row, write

from pta.data.prompts import load_templates
from pta.models import load_encoder
from pta.models.packaged.embedded import training_nouns, unread_names

# In brackets the class of Fashion-MNIST that a word belongs to, if there is one.
CLOTHING = """
jumper (pullover), hoodie (pullover), cardigan (pullover), jeans (trouser), shorts (trouser), skirt (dress), blazer
(coat), vest (t-shirt), tank top (t-shirt), polo shirt (t-shirt), leggings (trouser), chinos (trouser), sweatpants
(trouser), kimono (coat), tunic (shirt), slipper (sandal), loafer (sneaker), high heel (sandal), moccasin (sneaker),
rain boot (ankle boot), backpack (bag), clutch (bag), satchel (bag), suitcase (bag), wallet (bag), hat, cap, scarf,
glove, belt, sock, tie, swimsuit, bikini, pyjamas, robe (coat), apron, raincoat (coat), anorak (coat), poncho (coat),
uniform, tuxedo (coat), suit (coat), leather jacket (coat), denim jacket (coat), knitwear (pullover), underwear, bra,
wedding dress (dress), cowboy boot (ankle boot)
"""
OTHERS = """
dog, cat, horse, car, truck, airplane, ship, frog, deer, bird, coffee, tea, pizza, banana, apple, tree, flower, house,
mountain, river, computer, phone, keyboard, guitar, piano, book, pencil, chair, table, lamp, bottle, spoon, knife,
bicycle, train, bus, elephant, lion, shark, whale, man, woman, child, robot, castle, bridge, rocket, hammer, umbrella,
clock
"""
FURTHER_CLOTHING = """
sweatshirts (pullover), evening gown (dress), tennis shoes (sneaker), duffle coat (coat), turtleneck (pullover),
dungarees (trouser), culottes (trouser), stiletto, clog (sandal), messenger bag (bag), rucksack (bag), riding boot
(ankle boot), espadrille (sandal), windbreaker (coat), bomber jacket (coat), pinafore (dress), camisole (t-shirt),
flannel shirt (shirt), overalls (trouser), mitten
"""
FURTHER_OTHERS = """
tiger, sandwich, violin, helicopter, cup of coffee, window, snow, moon, doctor, screwdriver, penguin, tomato, volcano,
motorcycle, sofa, cabbage, laptop, river bank, boat, football
"""
SHAPES = """
wooden chair (chair), sailboat (boat), armchairs (armchair), bar stool (stool), dining table (table), bookcase (shelf),
toilet, piano, keyboard, guitar, bathtub, vase (bottle), laptop (monitor), airplane (plane), night stand (cabinet),
dresser (cabinet), flower pot (plant), mantel, stairs, radio
"""
NO_SHAPES = """
dog, cat, horse, coat, pizza, apple, shark, mountain, river, book, spoon, knife, castle, bridge, cloud, moon, whale,
banana, tomato, frog
"""


@dataclass(frozen=True)
class Word:
    """A class name, what the model makes of it, and whether a warning is right."""

    name: str
    kind: str  # "read rightly", "misread" or "other"
    cosine: float  # the best with a name of the training
    unread: bool  # by the package's rule

    @property
    def deserves_warning(self) -> bool:
        """Whether the model does not read it rightly."""
        return self.kind != "read rightly"


def judged(model: str, about: str, others: str) -> list[Word]:
    """The words of two lists, with what a packaged model makes of them."""
    encoder, nouns = load_encoder(model), training_nouns(model)
    templates = load_templates("clip", encoder.modality.prompts)
    owner = {noun: name for name, listed in nouns.items() for noun in (name, *listed)}

    def anchors(names: list[str]) -> torch.Tensor:
        rows = [encoder.encode_texts([one.replace("{}", name) for one in templates]).mean(dim=0) for name in names]
        return torch.nn.functional.normalize(torch.stack(rows), dim=-1)

    listed = [(*_split(word), True) for word in about.split(",")] + [
        (*_split(word), False) for word in others.split(",")
    ]
    cosines, nearest = (anchors([name for name, _, _ in listed]) @ anchors(list(owner)).T).max(dim=1)
    words = []
    for (name, own, is_about), cosine, noun in zip(listed, cosines.tolist(), nearest.tolist(), strict=True):
        read = "read rightly" if owner[list(owner)[noun]] == own else "misread"
        words.append(Word(name, read if is_about else "other", cosine, bool(unread_names(model, [name]))))
    return words


def _split(word: str) -> tuple[str, str]:
    name, _, own = " ".join(word.split()).partition(" (")
    return name, own.removesuffix(")")


def best_threshold(words: list[Word], wanted: list[bool]) -> float:
    """The threshold on the cosine that is wrong about the fewest words, given which ones it is to warn about."""
    candidates = sorted({0.0, 1.01, *(word.cosine for word in words)})

    def errors(low: float) -> int:
        return sum((word.cosine < low) != want for word, want in zip(words, wanted, strict=True))

    return min(candidates, key=errors)


def counted(part: str, model: str, words: list[Word], thresholds: dict[str, float]) -> Iterator[Row]:
    """Rows of how many words of each kind are warned about."""
    measures = {name: [word.cosine < low for word in words] for name, low in thresholds.items()}
    for measure, warned in (measures | {"nouns": [word.unread for word in words]}).items():
        for kind in ("read rightly", "misread", "other"):
            own = [told for word, told in zip(words, warned, strict=True) if word.kind == kind]
            low = f"{thresholds[measure]:.4f}" if measure in thresholds else ""
            about = {"part": part, "model": model, "measure": measure, "threshold": low, "kind": kind}
            yield about | {"words": len(own), "warned": sum(own)}


def measured() -> Iterator[Row]:
    """All rows."""
    chosen_on = judged("embedded", CLOTHING, OTHERS)
    thresholds = {
        "cosine": best_threshold(chosen_on, [word.deserves_warning for word in chosen_on]),
        "clothing": best_threshold(chosen_on, [word.kind == "other" for word in chosen_on]),
    }
    yield from counted("chosen on", "embedded", chosen_on, thresholds)
    yield from counted("checked on", "embedded", judged("embedded", FURTHER_CLOTHING, FURTHER_OTHERS), thresholds)
    yield from counted("checked on", "embedded-points", judged("embedded-points", SHAPES, NO_SHAPES), {})


if __name__ == "__main__":
    write(RESULTS / "embedded-words.csv", measured())
