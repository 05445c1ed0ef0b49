"""What is in the sdist and in the wheel, and what must not be.

python releasing/distributions.py [FOLDER]
"""

import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LARGEST_WHEEL = 10_000_000  # bytes
BUILT_FROM = {"pyproject.toml", "README.md", "LICENSE", "releasing/pypi_readme.py"}
MADE_BY_THE_BUILD = {"PKG-INFO", ".gitignore"}  # the second tells the builder what to leave out
MACHINE_PATH = re.compile(rb"(?:/home|/Users|/root)/[\w.-]+|[A-Z]:\\Users\\|" + re.escape(bytes(ROOT)))
TEST = re.compile(
    r"(?:^|/)(?:tests?|benchmarks?|training)/|(?:^|/)(?:test_|conftest\.py)|\.egg-info|__pycache__|\.pyc$"
)


def package_files() -> set[str]:
    """The files of the package in this clone, from `pta/` on."""
    files = (path for path in (ROOT / "src" / "pta").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT / "src").as_posix() for path in files}


def faults_of_a_wheel(path: Path) -> Iterator[str]:
    """What is wrong with a wheel."""
    if path.stat().st_size >= LARGEST_WHEEL:
        yield f"has {path.stat().st_size:,} bytes; less than {LARGEST_WHEEL:,} are allowed"
    with zipfile.ZipFile(path) as wheel:
        contents = {name: wheel.read(name) for name in wheel.namelist()}
    info = f"{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}.dist-info/"
    packaged = {name for name in contents if not name.startswith(info)}
    yield from _differences(packaged, package_files())
    for licence in PROJECT["license-files"]:
        if contents.get(f"{info}licenses/{licence}") != (ROOT / licence).read_bytes():
            yield f"lacks the licence {licence}"
    yield from _unwanted(contents)


def faults_of_an_sdist(path: Path) -> Iterator[str]:
    """What is wrong with an sdist."""
    with tarfile.open(path) as sdist:
        members = {one.name.split("/", 1)[1]: sdist.extractfile(one) for one in sdist.getmembers() if one.isfile()}
        contents = {name: file.read() for name, file in members.items() if file}
    yield from _differences(set(contents) - MADE_BY_THE_BUILD, BUILT_FROM | {f"src/{one}" for one in package_files()})
    yield from _unwanted(contents)


def _differences(found: set[str], wanted: set[str]) -> Iterator[str]:
    yield from (f"lacks {name}" for name in sorted(wanted - found))
    yield from (f"has {name}, which does not belong there" for name in sorted(found - wanted))


def _unwanted(contents: dict[str, bytes]) -> Iterator[str]:
    for name, content in contents.items():
        if TEST.search(name):
            yield f"has {name}, which only development needs"
        if place := MACHINE_PATH.search(content):
            yield f"has {place[0].decode()!r}, a path of a machine, in {name}"


def main(folder: str = "dist") -> str | None:
    """The faults of the one wheel and the one sdist in a folder, or none."""
    faults = []
    for pattern, look in {"*.whl": faults_of_a_wheel, "*.tar.gz": faults_of_an_sdist}.items():
        match sorted(Path(folder).glob(pattern)):
            case [path]:
                faults += [f"{path.name} {fault}" for fault in look(path)]
            case found:
                faults.append(f"{folder} has {len(found)} files {pattern}, and must have one; run make build")
    return "\n".join(faults) or None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
