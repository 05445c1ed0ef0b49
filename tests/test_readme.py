"""The Python in the README runs as it stands, but for the packaged model; generated pages are up to date."""

import re
import runpy
from pathlib import Path

import torch
from photos import FASHION

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_CACHE", str(tmp_path))
    pictures, features = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    rng = torch.Generator().manual_seed(1)
    names = {
        "pictures": list(FASHION.images[:3]),
        "text_features": torch.randn(3, 8, generator=rng),
        "class_names": ["apple", "pear", "plum"],
        "stream": torch.randn(4, 5, 8, generator=rng),
    }
    exec(compile(pictures.replace("hf:openai/clip-vit-base-patch16", "embedded"), "README.md", "exec"), names)
    assert len(capsys.readouterr().out.splitlines()) == 3
    exec(compile(features, "README.md", "exec"), names)
    assert capsys.readouterr().out.count("tensor(") == 4
    assert (tmp_path / "kitchen.safetensors").exists()


def test_the_page_of_parameters_is_what_the_methods_declare():
    script = runpy.run_path(str(README.parent / "docs" / "make_parameters.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"]()
