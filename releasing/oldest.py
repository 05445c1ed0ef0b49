"""The lowest versions that pyproject.toml allows, as constraints: `make oldest` writes constraints-oldest.txt.

The tools of development, the extra `dev`, are not among them.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints-oldest.txt"
HEAD = """\
# The lowest versions that pyproject.toml allows. `make oldest` writes this file, `make test-oldest` tests with it.
"""
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)")


def lowest() -> Iterator[str]:
    """One line for each package that the project or an extra asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name != "dev"}
    for requirement in [*project["dependencies"], *(one for needs in extras.values() for one in needs)]:
        if requirement.startswith(project["name"]):
            continue  # an extra that is made of others
        found = REQUIREMENT.match(requirement)
        if found is None:
            raise ValueError(f"pyproject.toml gives no lowest version: {requirement}")
        yield f"{found[1]}=={found[2]}"


def constraints() -> str:
    """The text of the file."""
    return HEAD + "".join(f"{line}\n" for line in dict.fromkeys(lowest()))


if __name__ == "__main__":
    CONSTRAINTS.write_text(constraints(), encoding="utf-8")
