"""The workflows: every step is a target of the Makefile or a pinned action, nothing has more rights than it needs."""

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.fixture(params=WORKFLOWS.items(), ids=lambda item: item[0])
def workflow(request):
    return yaml.safe_load(request.param[1])


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_what_a_step_runs_is_a_target_of_the_makefile(workflow):
    for step in steps(workflow):
        if "run" in step:
            make, *words = step["run"].split()
            assert make == "make"
            assert {word for word in words if "=" not in word} <= TARGETS


@pytest.mark.parametrize("name", WORKFLOWS)
def test_an_action_is_pinned_by_its_digest_with_the_version_beside_it(name):
    used = re.findall(r"uses: (.+)", WORKFLOWS[name])
    assert used
    assert all(PINNED.fullmatch(one) for one in used)


def test_one_action_has_one_digest():
    used = {one for text in WORKFLOWS.values() for one in re.findall(r"uses: (.+)", text)}
    assert len({one.partition("@")[0] for one in used}) == len(used)


def test_rights_are_given_to_jobs_one_by_one(workflow):
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert set(job["permissions"].items()) <= {("contents", "read"), ("id-token", "write"), ("pages", "write")}
        if "id-token" in job["permissions"]:  # such a job runs nothing of the clone
            assert "contents" not in job["permissions"]
            assert job["environment"]["name"] in ("testpypi", "pypi", "github-pages")
            assert not any("run" in step for step in job["steps"])
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_nothing_reaches_pypi_before_the_test_index():
    jobs = yaml.safe_load(WORKFLOWS["release.yml"])["jobs"]
    assert [jobs["testpypi"]["needs"], jobs["pypi"]["needs"]] == ["build", "testpypi"]


def test_contributing_says_of_every_job_whether_it_has_run():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+\.yml)` ([\w, -]+?)(?:, Python [\d.to ]+)? \| .*\|$", text, flags=re.MULTILINE)
    listed = {(name, job) for name, jobs in rows for job in jobs.split(", ")}
    assert listed == {(name, job) for name, text in WORKFLOWS.items() for job in yaml.safe_load(text)["jobs"]}


def test_the_python_versions_of_a_change_are_those_that_are_supported():
    matrix = yaml.safe_load(WORKFLOWS["ci.yml"])["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
