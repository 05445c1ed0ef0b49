"""The paper's collapsed row beside the shares of single classes in the test splits (CoOp's split_zhou_*.json)."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from result_file import Row

PRINTED = {  # accuracy with raw confidence scores, Table 10 of the paper
    "Caltech101": "5.27",
    "DescribableTextures": "2.13",
    "EuroSAT": "11.11",
    "OxfordFlowers": "0.49",
    "OxfordPets": "2.73",
    "StanfordCars": "0.55",
    "UCF101": "1.16",
}


def measure(folder: Path) -> Iterator[Row]:
    """Each split of the folder."""
    for path in sorted(folder.glob("split_zhou_*.json")):
        name = path.stem.removeprefix("split_zhou_")
        sizes = Counter(label for _, label, _ in json.loads(path.read_text(encoding="utf-8"))["test"])
        shares = {label: f"{100 * size / sizes.total():.2f}" for label, size in sizes.items()}
        yield {
            "dataset": name,
            "samples": sizes.total(),
            "classes": len(sizes),
            "printed": PRINTED[name],
            "first_class": shares[0],
            "classes_of_the_printed_share": sum(share == PRINTED[name] for share in shares.values()),
        }
