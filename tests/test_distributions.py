"""The wheel and the sdist contain what they must, and nothing else."""

import shutil
import tarfile
import zipfile
from pathlib import Path

import distributions
import pytest

ROOT = Path(__file__).parents[1]
pytest.importorskip("hatchling")

from pypi_readme import shown


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist of this clone."""
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    folder = tmp_path_factory.mktemp("dist")
    builders = (WheelBuilder(str(ROOT)), SdistBuilder(str(ROOT)))
    return [Path(next(builder.build(directory=str(folder), versions=["standard"]))) for builder in builders]


def test_the_distributions_of_this_clone_are_right(built):
    wheel, sdist = built
    assert list(distributions.faults_of_a_wheel(wheel)) == []
    assert list(distributions.faults_of_an_sdist(sdist)) == []
    assert distributions.main(str(wheel.parent)) is None


def test_the_page_of_the_index_has_no_link_into_the_clone(built):
    with zipfile.ZipFile(built[0]) as wheel:
        name = next(one for one in wheel.namelist() if one.endswith("METADATA"))
        text = wheel.read(name).decode()
    assert "# pta\n" in text
    for place in ("](docs/", 'src="docs/', "](src/", "<!-- n:"):
        assert place not in text


def test_links_of_the_readme_lead_to_the_released_version():
    text = 'See [a](docs/a.md#b), [c](https://c.org) <!-- n: 1 -->2<!-- end -->.\n\n<img src="i.png" width="5">\n\nEnd.'
    there = shown(text, "https://example.org/pta", "1.2")
    assert "[a](https://example.org/pta/blob/v1.2/docs/a.md#b), [c](https://c.org) 2." in there
    assert '<img src="https://example.org/pta/raw/v1.2/i.png" width="5">' in there
    assert shown(text, None, "1.2") == "See a, [c](https://c.org) 2.\n\nEnd."


UNWANTED = {
    "a test": ("pta/tests/test_a.py", b"", "which only development needs"),
    "compiled code": ("pta/__pycache__/a.pyc", b"", "which only development needs"),
    "a benchmark": ("benchmarks/a.py", b"", "which does not belong there"),
    "the clone's place": ("pta/errors.py", bytes(ROOT), "a path of a machine, in pta/errors.py"),
    "a home": ("pta/errors.py", b"see /home/somebody/x", "'/home/somebody', a path of a machine"),
}


@pytest.mark.parametrize(("name", "content", "said"), UNWANTED.values(), ids=UNWANTED)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_does_not_belong_in_a_wheel_is_found(built, tmp_path, name, content, said):
    wheel = Path(shutil.copy(built[0], tmp_path))
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(name, content)
    assert any(said in fault for fault in distributions.faults_of_a_wheel(wheel))


def test_what_a_wheel_lacks_is_found(built, tmp_path):
    wheel = tmp_path / "empty.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pta/__init__.py", b"")
    faults = list(distributions.faults_of_a_wheel(wheel))
    assert "lacks the licence LICENSE" in faults
    assert "lacks the licence src/pta/assets/NOTICE" in faults
    assert "lacks pta/py.typed" in faults
    assert "must have one; run make build" in distributions.main(str(tmp_path))


def test_a_test_in_an_sdist_is_found(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    (folder / "tests").mkdir()
    (folder / "tests" / "conftest.py").touch()
    with tarfile.open(tmp_path / "more.tar.gz", "w:gz") as archive:
        archive.add(folder, folder.name)
    faults = list(distributions.faults_of_an_sdist(tmp_path / "more.tar.gz"))
    assert "has tests/conftest.py, which does not belong there" in faults
