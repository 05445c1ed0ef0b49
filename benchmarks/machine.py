"""What every benchmark says about where it ran."""

import platform
from pathlib import Path

import torch


def hardware() -> str:
    """The processor's name, the number of threads used and the version of torch."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}; {torch.get_num_threads()} thread(s); torch {torch.__version__}"
