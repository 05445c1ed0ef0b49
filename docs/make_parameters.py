"""Writes docs/parameters.md from the declarations in the code: python docs/make_parameters.py"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pta.cli.methods import describe
from pta.methods.registry import BUILT_IN

PAGE = Path(__file__).with_name("parameters.md")


def as_markdown(records: Sequence[dict[str, Any]]) -> str:
    """Every parameter of every method, as `docs/parameters.md` has them."""
    lines = [
        "# Parameters",
        "",
        "Made by `python docs/make_parameters.py` from the declarations in the code.",
        "",
    ]
    for record in records:
        lines += [f"## `{record['method']}`", "", f"{record['summary']} Needs: {', '.join(record['needs'])}.", ""]
        if record["parameters"]:
            lines += ["| parameter | default | may be | what it is |", "|---|---|---|---|"]
            for key, one in record["parameters"].items():
                default = "" if one["default"] is None else f"`{one['default']}`"
                lines.append(f"| `{key}` | {default} | {one['bounds']} | {one['help']} |")
            lines.append("")
    return "\n".join(lines)


def page() -> str:
    """The page as it should be."""
    return as_markdown([describe(name) for name in BUILT_IN])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
