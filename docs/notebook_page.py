"""A notebook with its outputs as a page of the site."""

import base64
import json
from pathlib import Path


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """The page as Markdown, and its pictures by name."""
    blocks, pictures = [], {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = _text(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source.replace(".ipynb)", ".md)"))
            continue
        blocks.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if "image/png" in (data := output.get("data", {})):
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(_text(data["image/png"]))
                blocks.append(f"![output of the code above]({name})")
            else:
                text = _text(output.get("text") or data["text/plain"]).rstrip()
                blocks.append(f"```text\n{text}\n```")
    blocks.append(f'<a href="../{path.name}" download>Download this notebook</a>')
    return "\n\n".join(blocks) + "\n", pictures


def _text(lines: str | list[str]) -> str:
    return "".join(lines)
