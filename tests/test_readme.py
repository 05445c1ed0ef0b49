"""The Python in the README runs as it stands."""

import re
from pathlib import Path

import torch

README = Path(__file__).parents[1] / "README.md"


def test_the_five_lines_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    rng = torch.Generator().manual_seed(1)
    names = {
        "text_features": torch.randn(3, 8, generator=rng),
        "class_names": ["apple", "pear", "plum"],
        "stream": torch.randn(4, 5, 8, generator=rng),
    }
    exec(compile(example, "README.md", "exec"), names)
    assert capsys.readouterr().out.count("tensor(") == 4
    assert (tmp_path / "kitchen.safetensors").exists()
