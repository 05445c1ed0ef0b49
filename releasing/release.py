"""`make release`: check that a release can be made, fill in its date, commit and tag it. Nothing is sent anywhere.

python releasing/release.py [VERSION]
python releasing/release.py --tag TAG     check that a tag is a release of this commit
"""

import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HEADING = re.compile(r"^## (\S+), (.+)$", flags=re.MULTILINE)
UNRELEASED = "unreleased"


class CannotRelease(Exception):
    """Why not, and what to do, in one line."""


def check_versions(root: Path) -> tuple[str, str]:
    """The version, which all files must name, and the date that the changelog gives it."""
    version = _project(root)["version"]
    for file, pattern in {
        "CITATION.cff": r"^version: (\S+)$",
        "src/pta/__init__.py": r'^__version__ = "(.+)"$',
    }.items():
        said = re.findall(pattern, (root / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
        if said != [version]:
            raise CannotRelease(f"{file} says version {', '.join(said) or 'nothing'}, pyproject.toml says {version}")
    newest = HEADING.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if newest is None or newest[1] != version:
        raise CannotRelease(f"the first heading of CHANGELOG.md must be: ## {version}, unreleased")
    return version, newest[2]


def check(root: Path, wanted: str | None = None) -> str:
    """The version that can be released now."""
    if wanted not in (None, said := _project(root)["version"]):
        raise CannotRelease(f"VERSION={wanted}, but pyproject.toml says {said}; change it there, and commit that")
    version, date = check_versions(root)
    if date != UNRELEASED:
        raise CannotRelease(f"CHANGELOG.md says {version} was released: {date}; a new release needs a new version")
    if "Repository" not in _project(root).get("urls", {}):
        raise CannotRelease(
            'pyproject.toml needs the address of the repository: [project.urls] Repository = "https://…"'
        )
    if changed := git(root, "status", "--porcelain").splitlines():
        raise CannotRelease(f"{len(changed)} file(s) are not committed, {changed[0][3:]} first; commit or remove them")
    if git(root, "tag", "--list", f"v{version}"):
        raise CannotRelease(f"the tag v{version} exists; a version is released once: give pyproject.toml a new one")
    if (branch := git(root, "branch", "--show-current")) != "main":
        raise CannotRelease(f"this is {branch or 'no branch'}; releases are made on main: git switch main")
    return version


def check_tag(root: Path, tag: str) -> None:
    """Refuse a tag that is not the version of pyproject.toml, or whose changelog has no date."""
    version, date = check_versions(root)
    if tag != f"v{version}":
        raise CannotRelease(
            f"the tag is {tag or 'not given'}, pyproject.toml says {version}; make release makes the tag"
        )
    if date == UNRELEASED:
        raise CannotRelease(f"CHANGELOG.md has no date for {version}; make release fills it in")


def release(root: Path, version: str, date: str) -> None:
    """Write the date, keep the list of public names, commit and tag; if git refuses, everything is as it was."""
    changelog, citation = root / "CHANGELOG.md", root / "CITATION.cff"
    names = root / "tests" / "public_api" / f"{version}.txt"
    before = {path: path.read_text(encoding="utf-8") for path in (changelog, citation)}
    changelog.write_text(
        before[changelog].replace(f"## {version}, {UNRELEASED}", f"## {version}, {date}", 1), encoding="utf-8"
    )
    others = re.sub(r"^date-released: .*\n", "", before[citation], flags=re.MULTILINE)
    dated = others.replace(f"version: {version}\n", f"version: {version}\ndate-released: {date}\n", 1)
    citation.write_text(dated, encoding="utf-8")
    names.write_bytes(names.with_name("current.txt").read_bytes())
    try:
        git(root, "add", "--force", str(names))
        git(root, "commit", "--quiet", "--message", f"Release {version}", changelog.name, citation.name, str(names))
    except CannotRelease:
        git(root, "rm", "--quiet", "--cached", "--ignore-unmatch", str(names))
        names.unlink()
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")
        raise
    git(root, "tag", "--annotate", f"v{version}", "--message", f"Release {version}")


def git(root: Path, *arguments: str) -> str:
    """What git says."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotRelease("a release needs git") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())
        raise CannotRelease(f"git {arguments[0]} refused: {said[:300]}")
    return done.stdout.rstrip()


def _project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def main(arguments: list[str]) -> str | None:
    """The message of a refusal, or none."""
    try:
        if arguments[:1] == ["--tag"]:
            check_tag(ROOT, *arguments[1:])
            return None
        version = check(ROOT, *filter(None, arguments))
        release(ROOT, version, datetime.now(UTC).date().isoformat())
    except CannotRelease as error:
        return f"make release: {error}"
    print(f"v{version} is committed and tagged here. To publish it: git push origin main v{version} (RELEASING.md)")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
