"""What the project says about installing it."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from pta.errors import how_to_install

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LICENSED = re.compile(r"([\w-]+/[\w-]+) \((MIT|BSD-3-Clause)\)")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def read(*patterns):
    return {path: path.read_text(encoding="utf-8") for pattern in patterns for path in ROOT.glob(pattern)}


ADVICE = re.compile(r"pip install ([^`\n]*)")
OURS = re.compile(r"'pta-vlm\[([\w,]+)\]'|'\.\[([\w,]+)\]'")


def test_every_advised_extra_exists():
    advised = {"hf"}
    for text in read("*.md", "docs/*.md").values():
        for line in ADVICE.findall(text):
            advised |= {extra for found in OURS.findall(line) for extra in ",".join(found).strip(",").split(",")}
    for text in read("src/pta/**/*.py").values():
        advised |= set(re.findall(r"how_to_install\(['\"](\w+)", text))
    assert {"hf", "openclip", "figures"} <= advised <= set(PYPROJECT["project"]["optional-dependencies"])


def test_messages_and_pages_name_the_package_of_the_index():
    """It is also right in a clone: pip finds the installed package and adds what the extra needs."""
    assert how_to_install("hf") == f"run pip install '{PYPROJECT['project']['name']}[hf]'"
    for path, text in read("docs/*.md", "src/pta/**/*.py").items():
        assert "pip install -e" not in text, path


def test_the_first_hour_says_from_when_on_the_package_can_be_had():
    text = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
    assert re.search(r"pip install pta-vlm +# from the first release on", text)


def test_the_base_install_compiles_ptas_steps():
    assert any(one.startswith("numba>=") for one in PYPROJECT["project"]["dependencies"])
    for path, text in read("*.md", "docs/*.md", "deploy/*", "Makefile", "src/pta/**/*.py").items():
        assert not re.search(r"extra `fast`|\[(?:\w+,)*fast[],]", text) or path.name == "CHANGELOG.md", path


def test_licences_of_packaged_data_travel_with_the_package():
    notice, *others = [ROOT / path for path in PYPROJECT["project"]["license-files"] if path.startswith("src/pta/")]
    assert not others
    text = notice.read_text(encoding="utf-8")
    for one in ("Copyright © 2017 Zalando SE", "Copyright (c) 2021 OpenAI", "Copyright (c) 2023, salesforce.com, inc."):
        assert one in text
    assert "Permission is hereby granted, free of charge" in text
    assert "Redistributions in binary form must reproduce the above copyright notice" in text
    origins = [match for data in read("src/pta/assets/*.json").values() for match in re.findall(LICENSED, data)]
    assert len(origins) > 8
    for repository, licence in origins:
        assert f"github.com/{repository}" in text, licence


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")
@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_cpu_build_is_an_option_for_torch_alone_and_off_by_default(target):
    def commands(*options):
        call = ["make", "--dry-run", "--always-make", target, *options]
        return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)

    assert CPU_INDEX not in commands().stdout
    given = [line for line in commands("TORCH=cpu").stdout.splitlines() if CPU_INDEX in line]
    assert len(given) == 1
    assert given[0].endswith(f"--no-deps --index-url {CPU_INDEX} torch")
    refused = commands("TORCH=gpu")
    assert refused.returncode == 2
    assert "TORCH=gpu is not known" in refused.stderr


def test_uv_has_the_cpu_build_as_a_group_that_is_off_by_default():
    uv = PYPROJECT["tool"]["uv"]
    assert uv["index"] == [{"name": "pytorch-cpu", "url": CPU_INDEX, "explicit": True}]
    assert uv["sources"] == {"torch": [{"index": "pytorch-cpu", "group": "cpu"}]}
    assert uv["conflicts"] == [[{"group": "cpu"}, {"group": "cuda"}]]
    assert set(PYPROJECT["dependency-groups"]) == {"cpu", "cuda"}
    assert "default-groups" not in uv  # a group called dev would be on
