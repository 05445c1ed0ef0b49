"""The commands and Python examples that README.md and docs show."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^    (?:pta|python) .*\n)+", flags=re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """A command, or a block of Python, and the page that shows it."""

    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0][:100]}"

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of every `pta` in the command's pipe, without the name itself."""
        parts = [[]]
        for word in shlex.split(self.text):
            parts.append([]) if word == "|" else parts[-1].append(word)
        return [part[1:] for part in parts if part and part[0] == "pta"]


def commands() -> list[Snippet]:
    """Every line that calls `pta`, in the order of the pages; lines that end in a backslash are joined."""
    return [
        Snippet(page.name, line)
        for page in PAGES
        for block in _blocks(page, language="")
        for line in _lines(block)
        if re.search(r"(?:^|\| )pta ", line)
    ]


def python_blocks() -> list[Snippet]:
    """Every block of Python."""
    return [Snippet(page.name, block) for page in PAGES for block in _blocks(page, language="python")]


def taken_for_granted() -> dict[str, object]:
    """The names that examples do not define; it writes shop.safetensors, a state, into this folder."""
    import torch
    from PIL import Image

    import pta
    from pta.data.fashion import load_fashion_test

    rng = torch.Generator().manual_seed(1)
    anchors = torch.nn.functional.normalize(torch.randn(3, 8, generator=rng), dim=1)
    classifier = pta.ZeroShotClassifier(anchors, ["apple", "pear", "plum"])
    features = torch.randn(5, 8, generator=rng)
    pictures = [Image.fromarray(image).convert("RGB") for image in load_fashion_test().images[:3]]
    pta.PTA(classifier).save("shop.safetensors")
    return {
        **{"pta": pta, "pictures": pictures, "camera": pictures, "picture": pictures[0]},
        **{"text_features": anchors, "anchors": anchors, "class_names": classifier.class_names},
        "labels": ["apple", "pear", "apple", "pear", "plum"],
        **{"classifier": classifier, "features": features, "samples": features, "stream": features.split(2)},
        **{"pixels": torch.zeros(2, 3, 64, 64), "ids": torch.tensor([[1, 2, 3]]), "mask": torch.ones(1, 3).bool()},
    }


def _blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    fenced = [block for kind, block in _FENCED.findall(text) if kind in (language, *(["sh", "bash"] * (not language)))]
    return fenced + (_INDENTED.findall(_FENCED.sub("", text)) if not language else [])


def _lines(block: str) -> list[str]:
    joined = re.sub(r"\\\n\s*", "", block)
    return [re.sub(r"\s+#\s.*", "", line).strip() for line in joined.splitlines()]
