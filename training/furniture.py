"""Makes clouds of freely licensed furniture: the test half that the package carries, the other half to train on.

The models are those of Debian's package sweethome3d-furniture. To get them without installing it:

    apt-get download sweethome3d-furniture && dpkg -x sweethome3d-furniture_*.deb sweethome3d

A model is used if its class follows from its title and its licence is clear. Models that may be variants of one another
are all in the same half: those of a class whose names are equal but for digits, or begin with the same word.
"""

import argparse
import csv
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pta.data.packaged_clouds import FURNITURE_CLASSES
from pta.door.points.cloud import Cloud, as_cloud
from pta.door.points.mesh import Mesh, lines_of, read_obj

SEED = 1
TEST_POINTS = 1024
TRAINING_POINTS = 8192  # of which a training step draws as many as a test cloud has

PATTERNS = {
    "armchair": r"armchair$",
    "bed": r"\b(bed|crib|futon)$",
    "bike": r"\b(?<!indoor )(bike|bicycle|scooter|motorbike|yzr r6)$",
    "bottle": r"bottle|flacon|\bjar$|vase$|pottery",
    "cabinet": r"cabinet$|wardrobe|cupboard|\bchest$|dresser|locker",
    "car": r"sedan|focus|beetle|truck|bus$|suv|van$|chevrolet|smart car|peugeot|renault|leon",
    "chair": r"\bchair\b|class seat",
    "cup": r"\b(cup|mug|glass|bowl)$",
    "door": r"\bdoor\b(?! cabinet)",
    "lamp": r"lamp(post)?\b|\blights?$|lantern|spotlight",
    "person": r"\b(female|male|boy|girl)$",
    "plant": r"plant$|tree$|bamboo|ficus|yucca|spath|tulips|flowers|orchids|cactus|lily|acacia|pine|beech|cypress|maple"
    r"|poplar|blossom|\bbush$",
    "shelf": r"shelves$|bookcase",
    "sofa": r"sofa|couch",
    "table": r"table\b(?! fan| tennis bat)|desk$",
    "window": r"window\b(?! blind| shutter)",
}
"""What the catalogue's name of a model of each class matches, in small letters."""

LICENCES = {
    "BlendSwap-CC-0": "CC0-1.0",
    "BlendSwap-CC-BY": "CC-BY-3.0",
    "KatorLegaz": "CC-BY-3.0-US",
    "Reallusion": "CC-BY-3.0-US",
    "Scopia": "CC-BY-3.0",
}
"""The licence of each catalogue."""

OWN_LICENCE = {
    "BlendSwap-CC-0": r"CC-?0|publicdomain/zero",
    "BlendSwap-CC-BY": r"Creative Commons Attribution 3\.0|licenses/by/3\.0",
}
"""In these catalogues each model has a licence of its own, which must say the same."""

AUTHORS = {
    "Kator Legaz": "Andrew Kator & Jennifer Legaz",
    "Scopia": "Scopia Visual Interfaces Systems, s.l.; Emmanuel Puybaret / eTeks",
    "Scopia & eTeks": "Scopia Visual Interfaces Systems, s.l.; Emmanuel Puybaret / eTeks",
}
"""How authors want to be named where the catalogue abbreviates."""


@dataclass(frozen=True)
class Credit:
    """One row of the list beside the clouds."""

    split: str
    class_name: str
    model: str
    title: str
    author: str
    licence: str
    catalogue: str


@dataclass(frozen=True)
class Model:
    """A model of the catalogues that can be used."""

    credit: Credit
    mesh: Mesh

    @property
    def letters(self) -> str:
        """The name without digits and signs."""
        return re.sub("[^a-z]", "", self.credit.model.lower())

    @property
    def word(self) -> str:
        """The first word of the name, or all letters if that is the word for the class, which says nothing."""
        if self.letters.startswith(self.credit.class_name):
            return self.letters
        return re.match("[A-Z]*[a-z]*", self.credit.model).group().lower()


def class_of(title: str) -> str | None:
    """The class of a model by its title, if exactly one matches."""
    found = [name for name, pattern in PATTERNS.items() if re.search(pattern, title.lower())]
    return found[0] if len(found) == 1 else None


def models_of(file: Path) -> Iterator[Model]:
    """The usable models of one catalogue."""
    with zipfile.ZipFile(file) as archive:
        catalogue = archive.read("PluginFurnitureCatalog.properties").decode("latin-1")
        told = dict(line.split("=", 1) for line in catalogue.splitlines() if "=" in line and line[0] != "#")
        for number in (key.partition("#")[2] for key in told if key.startswith("name#")):
            title, place = told[f"name#{number}"], told[f"model#{number}"].lstrip("/")
            class_name = class_of(title)
            if class_name is None or not has_clear_licence(archive, file.stem, place):
                continue
            model = told[f"id#{number}"].partition("#")[2]
            author = told[f"creator#{number}"]
            credit = Credit("", class_name, model, title, AUTHORS.get(author, author), LICENCES[file.stem], file.stem)
            mesh = read_obj(lines_of(archive.read(place)))
            rotation = np.array(told.get(f"modelRotation#{number}", "1 0 0 0 1 0 0 0 1").split(), float).reshape(3, 3)
            yield Model(credit, Mesh(mesh.corners @ rotation.T, mesh.triangles))


def has_clear_licence(archive: zipfile.ZipFile, catalogue: str, place: str) -> bool:
    """Whether the licence beside a model, where it must have one, is that of its catalogue."""
    if catalogue not in OWN_LICENCE:
        return True
    folder = place.rpartition("/")[0] + "/"
    files = [name for name in archive.namelist() if name.startswith(folder) and "licen" in name.lower()]
    text = "".join(archive.read(name).decode(errors="replace") for name in files)
    return bool(re.search(OWN_LICENCE[catalogue], text)) and not re.search("ShareAlike|Non-?Commercial", text)


def in_groups(models: list[Model]) -> list[list[Model]]:
    """Models that may be variants of one another: of one class, and with the same letters or the same first word."""
    words: dict[str, str] = {}
    for model in models:
        words[model.letters] = min(words.get(model.letters, model.word), model.word, key=len)
    groups: dict[tuple[str, str], list[Model]] = {}
    for model in models:
        groups.setdefault((model.credit.class_name, words[model.letters]), []).append(model)
    return list(groups.values())


def in_halves(models: list[Model], rng: np.random.Generator) -> Iterator[tuple[int, Model]]:
    """The models with their group and half: whole groups, so that each class has about as many in either."""
    counts: dict[tuple[str, str], int] = {}
    groups = in_groups(models)
    rng.shuffle(groups)
    for number, group in enumerate(sorted(groups, key=len, reverse=True)):
        name = group[0].credit.class_name
        half = min(("test", "train"), key=lambda half: counts.get((name, half), 0))
        counts[name, half] = counts.get((name, half), 0) + len(group)
        for model in group:
            yield number, Model(replace(model.credit, split=half), model.mesh)


def clouds_of(models: list[Model], points: int) -> dict[str, NDArray[np.generic]]:
    """Arrays for a file: clouds as they are stored, and labels."""
    clouds = [as_cloud(model.mesh.sample(points, SEED + k), normalise=True) for k, model in enumerate(models)]
    labels = [FURNITURE_CLASSES.index(model.credit.class_name) for model in models]
    return {"clouds": np.stack([as_stored(cloud) for cloud in clouds]), "labels": np.array(labels, np.uint8)}


def as_stored(cloud: Cloud) -> NDArray[np.uint16]:
    """Coordinates between −1 and 1 as whole numbers of two bytes, which `from_stored` of the package reads."""
    return np.round((cloud.astype(np.float64) + 1) / 2 * (2**16 - 1)).astype(np.uint16)


def main() -> None:
    """Write both halves and the list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--catalogues", type=Path, default=Path("/usr/share/sweethome3d/furniture"))
    parser.add_argument("--out", type=Path, default=Path("src/pta/assets"), help="where test clouds and list go")
    parser.add_argument("--training", type=Path, default=Path("training/carried"), help="where training clouds go")
    arguments = parser.parse_args()
    files = sorted(arguments.catalogues.glob("*.sh3f"))
    if not files:
        raise SystemExit(f"no .sh3f files in {arguments.catalogues}; the text above says how to get them")
    models = list(in_halves([model for file in files for model in models_of(file)], np.random.default_rng(SEED)))
    models.sort(key=lambda pair: (pair[1].credit.split, pair[1].credit.class_name, pair[1].credit.model.lower()))
    test, train = ([pair for pair in models if pair[1].credit.split == half] for half in ("test", "train"))
    arguments.training.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(arguments.out / "furniture_test.npz", **clouds_of([model for _, model in test], TEST_POINTS))
    groups = np.array([number for number, _ in train])
    training = clouds_of([model for _, model in train], TRAINING_POINTS)
    np.savez(arguments.training / "furniture.npz", **training, groups=groups)
    rows = io.StringIO()
    writer = csv.DictWriter(rows, [field.name for field in fields(Credit)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(model.credit) for _, model in models)
    (arguments.out / "furniture.csv").write_text(rows.getvalue())
    print(f"{len(test)} clouds to test, {len(train)} to train")


if __name__ == "__main__":
    main()
