"""The site: pages link to each other as they do in the repository, and files that they name are part of the site.

README.md becomes the first page. A linked file outside docs gets the address repository/PATH. Links to folders go.
The leaderboard is made from its CSV file, and a notebook becomes a page.
"""

import os
import re
from pathlib import Path

from leaderboard_page import MARK, filled
from mkdocs.structure.files import File, Files
from notebook_page import notebook_page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
IMAGE = re.compile(r'(<img src=")([^":]+)(")')


def on_files(files: Files, config: object) -> Files:
    """Add the first page, and every file outside docs that some page links to."""
    waiting = [ROOT / "README.md", *(Path(file.abs_src_path) for file in files.documentation_pages())]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for target in _linked(page):
            if target not in seen and target.is_file() and _address(target):
                seen.add(target)
                waiting += [target] if target.suffix == ".md" else []
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        page, pictures = notebook_page(path)
        for name, content in {f"{path.stem}.md": page, **pictures}.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    for path in sorted(seen):
        if files.get_file_from_path(_address(path)) is None:
            content = path.read_text(encoding="utf-8") if path.suffix == ".md" else path.read_bytes()
            files.append(File.generated(config, _address(path), content=content))
    return files


def on_page_markdown(markdown: str, page: object, config: object, files: Files) -> str:
    """Point links at where their targets are in the site."""
    here = _source(page.file.src_uri)

    def moved(target: str) -> str | None:
        path = _resolved(here, target)
        if path.is_dir():
            return None
        return os.path.relpath(_address(path), Path(page.file.src_uri).parent) if path.is_file() else target

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if ":" in target:
            return found[0]
        place = moved(target)
        return text if place is None else f"[{text}]({place}{anchor})"

    moved_links = IMAGE.sub(lambda found: f"{found[1]}{moved(found[2])}{found[3]}", LINK.sub(link, markdown))
    return filled(moved_links) if MARK in moved_links else moved_links


def _linked(page: Path) -> list[Path]:
    text = page.read_text(encoding="utf-8")
    targets = [found[2] for found in LINK.finditer(text)] + [found[2] for found in IMAGE.finditer(text)]
    return [_resolved(page, target) for target in targets if ":" not in target]


def _resolved(page: Path, target: str) -> Path:
    return Path(os.path.normpath(page.parent / target))


def _address(path: Path) -> str:
    """The address of a file of the repository in the site; empty for a file outside the repository."""
    if not path.is_relative_to(ROOT):
        return ""
    place = path.relative_to(ROOT)
    if place == Path("README.md"):
        return "index.md"
    if place.suffix == ".ipynb":
        place = place.with_suffix(".md")
    return place.relative_to("docs").as_posix() if place.parts[0] == "docs" else f"repository/{place.as_posix()}"


def _source(address: str) -> Path:
    if address == "index.md":
        return ROOT / "README.md"
    return ROOT / address.removeprefix("repository/") if address.startswith("repository/") else ROOT / "docs" / address
