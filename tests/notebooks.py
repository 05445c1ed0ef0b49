"""The notebooks of docs/notebooks: `python tests/notebooks.py` executes them all, or those of some names, and keeps
their outputs.

`python tests/notebooks.py execute FILE FOLDER` executes one in a folder and writes it there. Outputs hold nothing of
the machine: no paths, no times, no warnings.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def execute(path, folder):
    """The notebook with its outputs; what it writes is written into the folder."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where the command `pta` is
    os.environ["PTA_CACHE"] = str(Path(folder) / "cache")
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(folder)}}).execute()
    return without_machine(notebook, folder)


def without_machine(notebook, folder):
    """The notebook with what is the same on every machine, but for the numbers that rounding decides."""
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        cell.outputs = joined(one for one in cell.outputs if one.get("name") != "stderr" and one.get("text") != "")
        for one in cell.outputs:
            one.pop("metadata", None) if one.output_type == "stream" else one.update(metadata={})
            if one.output_type == "stream":
                one.text = _ANSI.sub("", one.text).replace(str(folder), ".")
            else:
                kind = "image/png" if "image/png" in one.data else "text/plain"
                one.data = {kind: _ANSI.sub("", one.data[kind])}
    return notebook


def joined(outputs):
    """The outputs, in which a stream that came in parts is one."""
    whole = []
    for one in outputs:
        if whole and one.output_type == whole[-1].output_type == "stream":
            whole[-1].text += one.text
        else:
            whole.append(one)
    return whole


def main():
    import nbformat

    if sys.argv[1:2] == ["execute"]:
        path, folder = Path(sys.argv[2]), Path(sys.argv[3])
        nbformat.write(execute(path, folder), folder / path.name)
        return
    for path in [path for path in NOTEBOOKS if path.stem in (sys.argv[1:] or path.stem)]:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute(path, folder), path)


if __name__ == "__main__":
    main()
