"""The machine of a measurement, in words; every reported time names it."""

import platform
from pathlib import Path

import torch


def hardware(device: torch.device | str = "cpu") -> str:
    """The name of the processor or GPU, the number of threads used and the version of torch."""
    if torch.device(device).type == "cuda":
        return f"{torch.cuda.get_device_name(device)}; torch {torch.__version__}"
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}; {torch.get_num_threads()} thread(s); torch {torch.__version__}"
