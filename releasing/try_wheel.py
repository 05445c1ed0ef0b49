"""What a new user has: the installed wheel, a folder that is not the clone, and the pages of the documentation.

Run it with the Python of an environment that has the wheel alone (`make try-wheel`). It runs `pta demo`, the README's
Python, docs/first-hour.md and the notebooks, with the packaged model in the place of one from the hub.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))  # for snippets alone; the package is not there

from snippets import commands, python_blocks  # noqa: E402

FROM_THE_HUB = "hf:openai/clip-vit-base-patch16"
PREAMBLE = f"""\
import os, sys
import pta
assert not os.path.realpath(pta.__file__).startswith({str(ROOT / "src")!r}), "this is the clone, not the wheel"
sys.path.append({str(ROOT / "tests")!r})
from snippets import taken_for_granted
globals().update(taken_for_granted())
"""


def steps() -> Iterator[tuple[str, str, list[str]]]:
    """What is run, one after the other: the page, which has a folder of its own, a title, and the command."""
    yield "demo", "pta --version", ["pta", "--version"]
    yield "demo", "pta demo", ["pta", "demo"]
    for number, block in enumerate(one.text for one in python_blocks() if one.page == "README.md"):
        code = PREAMBLE + block.replace(FROM_THE_HUB, "embedded")
        yield "README", f"README.md, block {number + 1} of Python", ["python", "-c", code]
    make_pictures, *others = (one.text for one in python_blocks() if one.page == "first-hour.md")
    yield "first-hour", "first-hour.md, its pictures", ["python", "-c", make_pictures]
    for command in commands():
        if command.page == "first-hour.md" and command.text != "pta demo":  # it ran already
            yield "first-hour", str(command), shlex.split(command.text)
    for block in others:
        yield "first-hour", "first-hour.md, Python", ["python", "-c", block]
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        execute = [str(ROOT / "tests" / "notebooks.py"), "execute", str(notebook), "."]
        yield notebook.stem, notebook.name, ["python", *execute]


def main() -> str | None:
    """The first step that failed, or none."""
    binaries = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= {"PTA_MODEL": "embedded", "MPLBACKEND": "Agg", "PATH": f"{binaries}:{environment['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        environment["PTA_CACHE"] = f"{folder}/cache"
        for page, title, (name, *arguments) in steps():
            print(f"{title} …", flush=True)
            place = Path(folder, page)
            place.mkdir(exist_ok=True)
            call = [str(binaries / name), *arguments]
            done = subprocess.run(call, cwd=place, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"{title}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return None


if __name__ == "__main__":
    sys.exit(main())
