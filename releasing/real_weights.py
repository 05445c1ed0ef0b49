"""CLIP and SigLIP with real weights on real data, beside the paper's numbers. It has never run.

    python releasing/real_weights.py FOLDER

It downloads DTD and Pets (1.4 GB) from where the catalogue says, unless FOLDER has them, and the models from the hub.
CLIP ViT-B/16 must be within half a point of the paper's CLIP; SigLIP, of which the paper has no number, not below it.
"""

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from shutil import copyfileobj
from urllib.request import urlopen

from pta.data.catalogue import find_entry, place_of

INSIDE = {"dtd": ".", "oxford_pets": "oxford_pets"}  # where the archive of a set is unpacked
CLIP, SIGLIP = "hf:openai/clip-vit-base-patch16", "hf:google/siglip-base-patch16-224"
HALF_A_POINT = 0.5
PATIENCE = 120  # seconds without an answer


def download(address: str, place: Path) -> None:
    """Fetch a file; it has its name once it is complete."""
    drive = address.removeprefix("https://drive.google.com/file/d/")
    if drive != address:
        address = f"https://drive.google.com/uc?export=download&id={drive}"
    partial = place.with_name(place.name + ".part")
    with urlopen(address, timeout=PATIENCE) as answer, partial.open("wb") as file:
        copyfileobj(answer, file)
    partial.replace(place)


def prepare(name: str, root: Path, fetch: Callable[[str, Path], None] = download) -> None:
    """Put a set where the catalogue expects it."""
    entry = find_entry(name)
    if not place_of(entry.images, root).is_dir():
        archive, target = root / f"{name}.tar.gz", root / INSIDE[name]
        target.mkdir(parents=True, exist_ok=True)
        fetch(entry.images_from, archive)
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")
        archive.unlink()
    if not place_of(entry.test_list, root).is_file():
        fetch(entry.test_list_from, place_of(entry.test_list, root))


def measured(model: str, root: Path) -> list[dict[str, object]]:
    """What `pta verify` finds; its exit code is not asked, because each model has a bound of its own."""
    verdicts = root / "verdicts.json"
    sets = [word for name in INSIDE for word in ("--dataset", name)]
    places = ["--data", str(root), "--features", str(root / "features"), "--json", str(verdicts)]
    verdicts.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pta", "verify", model, "--architecture", "ViT-B/16", *sets, *places]
    subprocess.run(command, check=False)
    return json.loads(verdicts.read_text(encoding="utf-8")) if verdicts.exists() else []


def faults(model: str, verdicts: list[dict[str, object]]) -> list[str]:
    """What is out of bounds."""
    found = [f"{model}: {name} was not measured" for name in INSIDE if name not in {row["dataset"] for row in verdicts}]
    for row in verdicts:
        difference = row["difference"]
        within = isinstance(difference, float) and (
            abs(difference) <= HALF_A_POINT if model == CLIP else difference >= 0
        )
        if not within:
            found.append(
                f"{model} on {row['dataset']}: {row['measured']}, the paper's CLIP {row['published']} {row['note']}"
            )
    return found


def main(folder: str) -> str | None:
    """What is out of bounds, or none."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    for name in INSIDE:
        prepare(name, root)
    return "\n".join(fault for model in (CLIP, SIGLIP) for fault in faults(model, measured(model, root))) or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
