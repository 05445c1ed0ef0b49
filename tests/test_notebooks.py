"""The notebooks run, and what is committed of them is their own output and says nothing of a machine."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from notebooks import NOTEBOOKS

import pta
from pta.methods.checks import BrokenLaw

ROOT = Path(__file__).parents[1]
OF_A_MACHINE = re.compile(
    r"/(?:home|root|tmp|work|Users|opt|usr|var)/|site-packages|[Ww]arning|\d\s?(?:µs|ms|s/it|it/s)\b|\x1b"
)


def cells(path):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def texts(cell):
    for output in cell["outputs"]:
        yield "".join(output.get("text", []) or output.get("data", {}).get("text/plain", []))


def kinds(cell):
    """What kind of outputs a cell has; the numbers in them may differ in the last digit."""
    return [sorted(output.get("data", {output["output_type"]: ""})) for output in cell["outputs"]]


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["does-it-help", "five-minutes", "your-own-method"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_is_executed_has_pictures_and_says_nothing_of_a_machine(path):
    code = cells(path)
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert not any(output["output_type"] == "error" for cell in code for output in cell["outputs"])
    assert any("image/png" in kind for cell in code for kind in kinds(cell))
    assert not any(OF_A_MACHINE.search(text) for cell in code for text in texts(cell))
    assert path.stat().st_size < 300_000


def test_the_method_of_ones_own_has_forty_lines():
    source = "".join(cells(NOTEBOOKS[-1])[0]["source"])
    assert "class Momentum(pta.Adapter)" in source
    assert len(source.splitlines()) <= 40


@pytest.mark.extensive
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_an_empty_folder_with_outputs_of_the_same_kinds(path, tmp_path):
    pytest.importorskip("nbclient")
    called = [sys.executable, str(ROOT / "tests" / "notebooks.py"), "execute", str(path), str(tmp_path)]
    done = subprocess.run(called, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [kinds(cell) for cell in cells(tmp_path / path.name)] == [kinds(cell) for cell in cells(path)]


def test_the_code_of_the_first_notebook_runs_as_a_program(tmp_path):
    """Without a kernel, so that it is quick; `make test-all` runs all of them as notebooks."""
    code = "\n".join("".join(cell["source"]) for cell in cells(NOTEBOOKS[1]))
    called = [sys.executable, "-c", f"import matplotlib; matplotlib.use('agg')\n{code}"]
    done = subprocess.run(called, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "zero-shot:" in done.stdout


# -- mistakes of someone who changes them ------------------------------------------------------------------------------

CLASSIFIER = pta.ZeroShotClassifier(torch.eye(3, 8), ["cat", "dog", "owl"])
FEATURES = torch.ones(4, 8)


class Nameless(pta.Adapter):
    """Answers as zero-shot."""

    def _step(self, samples):
        return self._predict(samples)

    def _predict(self, samples):
        return self.classifier.logits(samples.features)


class Unregistered(Nameless):
    """Has a name that nobody knows."""

    name = "unregistered"


MISTAKES = {
    "no method is called 'ptaa'; did you mean 'pta'?": lambda: pta.create_adapter("ptaa", CLASSIFIER),
    "features have 3 dimensions but the classifier's anchors have 8": lambda: pta.PTA(CLASSIFIER).step(
        CLASSIFIER.logits(FEATURES)
    ),
    "class names must be a list of strings, not 'cat'": lambda: pta.Classifier("embedded", "cat", cache=None),
    "it must be a subclass of pta.Adapter with a name": lambda: pta.register(Nameless),
    "write @pta.register above the class": lambda: pta.check_adapter(Unregistered),
    "give the class, or a function that makes an adapter": lambda: pta.check_adapter(pta.PTA(CLASSIFIER)),
}


@pytest.mark.parametrize(("line", "call"), MISTAKES.items())
def test_a_mistake_is_answered_in_one_line(line, call):
    with pytest.raises((pta.PtaError, BrokenLaw)) as refused:
        call()
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
