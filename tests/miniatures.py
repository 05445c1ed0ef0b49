"""Tiny copies of the sixteen image sets, written by hand in the layout of each, with real JPEG files.

`build(id, root)` writes one and gives back what a reader should find: (key, label, class name) in order.
"""

import json
import zlib
from pathlib import Path

from photos import encoded, noise

SPLITS = {
    "oxford_flowers": (
        "oxford_flowers/jpg",
        "oxford_flowers/split_zhou_OxfordFlowers.json",
        [("image_9.jpg", 101, "blackberry lily"), ("image_2.jpg", 0, "pink primrose"), ("image_1.jpg", 3, "sweet pea")],
    ),
    "dtd": (
        "dtd/images",
        "dtd/split_zhou_DescribableTextures.json",
        [("banded/one.jpg", 0, "banded"), ("banded/two.jpg", 0, "banded"), ("zigzagged/one.jpg", 46, "zigzagged")],
    ),
    "oxford_pets": (
        "oxford_pets/images",
        "oxford_pets/split_zhou_OxfordPets.json",
        [("Abyssinian_1.jpg", 0, "abyssinian"), ("american_bulldog_1.jpg", 1, "american_bulldog")],
    ),
    "stanford_cars": (
        "stanford_cars",
        "stanford_cars/split_zhou_StanfordCars.json",
        [("cars_test/2.jpg", 1, "2012 Acura RL Sedan"), ("cars_test/1.jpg", 0, "2000 AM General Hummer SUV")],
    ),
    "ucf101": (
        "ucf101/UCF-101-midframes",
        "ucf101/split_zhou_UCF101.json",
        [("Apply_Eye_Makeup/v_1.jpg", 0, "Apply_Eye_Makeup"), ("Yo_Yo/v_1.jpg", 100, "Yo_Yo")],
    ),
    "caltech101": (
        "caltech-101/101_ObjectCategories",
        "caltech-101/split_zhou_Caltech101.json",
        [("Faces/a.jpg", 0, "face"), ("Leopards/a.jpg", 1, "leopard"), ("airplanes/a.jpg", 4, "airplane")],
    ),
    "food101": (
        "food-101/images",
        "food-101/split_zhou_Food101.json",
        [("apple_pie/1.jpg", 0, "apple_pie"), ("waffles/1.jpg", 100, "waffles")],
    ),
    "sun397": (
        "sun397/SUN397",
        "sun397/split_zhou_SUN397.json",
        [("a/abbey/1.jpg", 0, "abbey"), ("a/apartment_building/outdoor/1.jpg", 8, "outdoor apartment_building")],
    ),
    "eurosat": (
        "eurosat/2750",
        "eurosat/split_zhou_EuroSAT.json",
        [("AnnualCrop/1.jpg", 0, "Annual Crop Land"), ("SeaLake/1.jpg", 9, "Sea or Lake")],
    ),
}

TREES = {
    "imagenet": (
        "imagenet/images/val",
        [
            ("n01440764/b.JPEG", 0, "tench"),
            ("n01443537/a.JPEG", 1, "goldfish"),
            ("n15075141/a.JPEG", 999, "toilet paper"),
        ],
    ),
    "imagenet_a": (
        "imagenet-adversarial/imagenet-a",
        [
            ("n01498041/0.000348_chameleon _ box turtle_0.55.jpg", 0, "stingray"),
            ("n01498041/0.01_jellyfish _ jellyfish_0.7.jpg", 0, "stingray"),
            ("n01531178/0.2_shovel _ bee_0.1.jpg", 1, "goldfinch"),
            ("n01531178/0.3_fly _ bee_0.1.jpg", 1, "goldfinch"),
        ],
    ),
    "imagenet_v2": (
        "imagenetv2/imagenetv2-matched-frequency-format-val",
        [("0/f0.jpeg", 0, "tench"), ("10/0a.jpeg", 10, "brambling"), ("2/ff.jpeg", 2, "great white shark")],
    ),
    "imagenet_r": (
        "imagenet-rendition/imagenet-r",
        [("n01443537/art_0.jpg", 0, "goldfish"), ("n01484850/sketch_1.jpg", 1, "great white shark")],
    ),
    "imagenet_sketch": (
        "imagenet-sketch/images",
        [("n01440764/sketch_1.JPEG", 0, "tench"), ("n01443537/sketch_9.JPEG", 1, "goldfish")],
    ),
    "imagenet_c/fog/5": (
        "imagenet-c/fog/5",
        [("n01440764/v_1.JPEG", 0, "tench"), ("n01443537/v_2.JPEG", 1, "goldfish")],
    ),
}

AIRCRAFT = [("0000007", 0, "707-320"), ("1000002", 4, "737-400"), ("0600001", 0, "707-320")]

SOURCES = (*SPLITS, "fgvc_aircraft", *TREES)
"""What `build` can build; each is a source that `open_samples` understands."""


def jpeg(seed):
    """A small JPEG file's content, different for each seed."""
    return encoded(noise(12, 8, seed=seed))


def write_images(folder, keys):
    """A JPEG file at each of the paths below the folder."""
    for key in keys:
        path = Path(folder) / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(zlib.crc32(key.encode())))


def build(source, root):
    """Write the miniature of a set; what is to be found in it: (key, label, class name) in order."""
    if source in SPLITS:
        return _split(root, *SPLITS[source])
    if source == "fgvc_aircraft":
        return _aircraft(root / "fgvc_aircraft")
    folder, rows = TREES[source]
    write_images(root / folder, [key for key, _, _ in rows])
    (root / folder / "README.txt").write_text("A word about the data.")
    return rows


def _split(root, folder, file, rows):
    write_images(root / folder, [key for key, _, _ in rows])
    train = [["never/looked/at.jpg", 0, "nothing"]]
    (root / file).write_text(json.dumps({"train": train, "val": [], "test": rows}))
    return rows


def _aircraft(folder):
    write_images(folder / "images", [f"{id}.jpg" for id, _, _ in AIRCRAFT])
    (folder / "images_variant_test.txt").write_text("".join(f"{id} {variant}\n" for id, _, variant in AIRCRAFT))
    (folder / "variants.txt").write_text("\n".join(VARIANTS) + "\n")
    return [(f"{id}.jpg", label, variant) for id, label, variant in AIRCRAFT]


VARIANTS = ("707-320", "727-200", "737-200", "737-300", "737-400")
"""The first lines of the real variants.txt."""
