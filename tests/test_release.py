"""`make release` fills in a date, commits and tags; what must not be released is refused in one line."""

import shutil
import subprocess
from pathlib import Path

import oldest
import pytest
import real_weights
import release
import try_wheel

ROOT = Path(__file__).parents[1]
NAMES = ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "src/pta/__init__.py")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git on this machine")


def git(place, *arguments):
    return subprocess.run(["git", *arguments], cwd=place, check=True, capture_output=True, text=True).stdout


def change(place, name, old, new):
    text = (place / name).read_text(encoding="utf-8")
    assert old in text
    (place / name).write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with the files that a release reads, ready for version 9.8.7."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "src" / "pta").mkdir(parents=True)
    urls = '[project.urls]\nRepository = "https://example.org/pta"\n'
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "pta-vlm"\nversion = "9.8.7"\n{urls}')
    (tmp_path / "src/pta/__init__.py").write_text('__version__ = "9.8.7"\n')
    (tmp_path / "CITATION.cff").write_text(
        "title: pta\nversion: 9.8.7\ndate-released: 2001-01-01\nlicense: Apache-2.0\n"
    )
    (tmp_path / "tests" / "public_api").mkdir(parents=True)
    (tmp_path / "tests" / "public_api" / "current.txt").write_text("python pta.PTA\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 9.8.7, unreleased\n\n* New.\n\n## 9.8.6, 2001-01-01\n")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "config", "user.name", "nobody")
    git(tmp_path, "config", "user.email", "nobody@example.org")
    git(tmp_path, "config", "core.hooksPath", "hooks")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


@needs_git
def test_a_release_is_dated_committed_and_tagged(clone):
    version = release.check(clone, "9.8.7")
    release.release(clone, version, "2030-02-01")
    assert "## 9.8.7, 2030-02-01\n" in (clone / "CHANGELOG.md").read_text()
    assert "## 9.8.6, 2001-01-01\n" in (clone / "CHANGELOG.md").read_text()
    assert (clone / "CITATION.cff").read_text().splitlines()[1:3] == ["version: 9.8.7", "date-released: 2030-02-01"]
    assert git(clone, "status", "--porcelain") == ""
    assert (clone / "tests" / "public_api" / "9.8.7.txt").read_text() == "python pta.PTA\n"
    assert git(clone, "describe", "--exact-match").strip() == "v9.8.7"
    release.check_tag(clone, "v9.8.7")
    with pytest.raises(release.CannotRelease, match=r"was released: 2030-02-01; a new release needs a new version"):
        release.check(clone)


MISTAKES = {
    "the date is there": ("CHANGELOG.md", "unreleased", "2030-01-01", r"says 9.8.7 was released: 2030-01-01"),
    "another heading": ("CHANGELOG.md", "9.8.7", "9.9.0", r"must be: ## 9.8.7, unreleased"),
    "no heading": ("CHANGELOG.md", "## 9.8.7, unreleased", "News", r"must be: ## 9.8.7, unreleased"),
    "another citation": (
        "CITATION.cff",
        "9.8.7",
        "9.9.0",
        r"CITATION.cff says version 9.9.0, pyproject.toml says 9.8.7",
    ),
    "another package": (
        "src/pta/__init__.py",
        "9.8.7",
        "9.9.0",
        r"__init__.py says version 9.9.0, pyproject.toml says",
    ),
    "no address": ("pyproject.toml", "Repository", "Homepage", r"needs the address of the repository"),
    "not committed": ("CHANGELOG.md", "New", "Newer", r"1 file\(s\) are not committed, CHANGELOG.md first"),
}


@needs_git
@pytest.mark.parametrize(("name", "old", "new", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(clone, name, old, new, said):
    change(clone, name, old, new)
    with pytest.raises(release.CannotRelease, match=said) as refused:
        release.check(clone)
    assert "\n" not in str(refused.value)
    assert git(clone, "log", "--oneline").count("\n") == 1


@needs_git
def test_a_tag_is_made_once_on_main_for_the_version_that_is_meant(clone):
    with pytest.raises(release.CannotRelease, match=r"VERSION=1.0.0, but pyproject.toml says 9.8.7"):
        release.check(clone, "1.0.0")
    git(clone, "switch", "--quiet", "--create", "other")
    with pytest.raises(release.CannotRelease, match=r"this is other; releases are made on main"):
        release.check(clone)
    git(clone, "tag", "v9.8.7")
    with pytest.raises(release.CannotRelease, match=r"the tag v9.8.7 exists"):
        release.check(clone)


@needs_git
def test_a_commit_that_git_refuses_leaves_the_files_as_they_were(clone):
    (clone / ".git" / "info" / "exclude").write_text("hooks\n")
    (clone / "hooks").mkdir()
    hook = clone / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    hook.chmod(0o755)
    before = {name: (clone / name).read_bytes() for name in NAMES}
    with pytest.raises(release.CannotRelease, match=r"git commit refused: no"):
        release.release(clone, release.check(clone), "2030-02-01")
    assert {name: (clone / name).read_bytes() for name in NAMES} == before
    assert git(clone, "tag") == ""


@needs_git
@pytest.mark.parametrize(("tag", "said"), [("v1.0.0", "the tag is v1.0.0"), ("", "not given"), ("v9.8.7", "no date")])
def test_a_workflow_publishes_only_a_dated_version(clone, tag, said):
    with pytest.raises(release.CannotRelease, match=said):
        release.check_tag(clone, tag)


def test_the_project_itself_says_one_version():
    assert release.check_versions(ROOT)


def test_the_wheel_is_tried_with_the_readme_and_the_first_hour():
    titles = [title for _, title, _ in try_wheel.steps()]
    assert titles[:3] == ["pta --version", "pta demo", "README.md, block 1 of Python"]
    assert sum(title.startswith("first-hour.md: pta ") for title in titles) == 3


def test_the_file_of_the_oldest_versions_is_what_pyproject_allows():
    assert oldest.CONSTRAINTS.read_text(encoding="utf-8") == oldest.constraints(), "run make oldest"


def row(dataset, difference):
    return {"dataset": dataset, "difference": difference, "measured": 0.0, "published": 0.0, "note": ""}


def test_real_weights_are_compared_with_the_paper():
    good = [row("dtd", 0.4), row("oxford_pets", -0.4)]
    assert real_weights.faults(real_weights.CLIP, good) == []
    assert len(real_weights.faults(real_weights.SIGLIP, good)) == 1  # below CLIP on Pets
    assert real_weights.faults(real_weights.SIGLIP, [row("dtd", 20.0), row("oxford_pets", 5.0)]) == []
    assert len(real_weights.faults(real_weights.CLIP, [row("dtd", 0.6)])) == 2  # too far, and one set is missing
    assert len(real_weights.faults(real_weights.CLIP, [row("dtd", None), row("oxford_pets", 0.0)])) == 1


def test_real_data_are_put_where_the_catalogue_expects_them(tmp_path):
    from pta.data.catalogue import find_entry, place_of

    folders = {"dtd": "dtd/images", "oxford_pets": "images"}  # in the archives
    asked = []

    def fetch(address, place):
        asked.append(address)
        if not place.name.endswith(".tar.gz"):
            place.write_text("{}")
            return
        inside = tmp_path / "made" / folders[place.name.removesuffix(".tar.gz")]
        inside.mkdir(parents=True)
        shutil.move(shutil.make_archive(tmp_path / "made", "gztar", tmp_path / "made"), place)
        shutil.rmtree(tmp_path / "made")

    for name in (*folders, *folders):  # twice: what is there is not fetched again
        real_weights.prepare(name, tmp_path / "data", fetch)
        entry = find_entry(name)
        assert place_of(entry.images, tmp_path / "data").is_dir()
        assert place_of(entry.test_list, tmp_path / "data").is_file()
    assert len(asked) == 4
