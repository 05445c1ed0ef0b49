"""The tests that numbers decide, repeated as on other machines: other threads, instructions and memory, no numba.

`make test-settings` runs it after `make test`, which has run them with the processor's own instructions and one thread.
Each machine is run to its end, whatever fails. What the processor does not have is skipped, with a line that says so.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

FILES = ("adapters", "checks", "engines", "features", "pta", "reference", "segments", "transduction", "zero_shot")
FILES += ("calibration", "compiled_step", "local_prior", "wpta")  # the second is skipped without numba

# Of torch, of oneDNN and of MKL: how far they may go. MKL decides by itself on processors that are not Intel's.
_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
_OLD = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
_OLD_NUMPY = {"NPY_DISABLE_CPU_FEATURES": " ".join(np.show_config("dicts")["SIMD Extensions"].get("found", []))}

MACHINES = {
    "AVX2, 3 threads, shifted memory": {**_AVX2, "OMP_NUM_THREADS": "3", "PTA_TEST_SHIFT": "24"},
    "no AVX, no numba, shifted memory": {**_OLD, **_OLD_NUMPY, "PTA_TEST_WITHOUT": "numba", "PTA_TEST_SHIFT": "40"},
    "16 threads, MKL's reproducible path": {"OMP_NUM_THREADS": "16", "MKL_CBWR": "COMPATIBLE"},
}


def run(settings: dict[str, str]) -> bool:
    """Run the files as on a machine; whether all tests passed."""
    tests = Path(__file__).parent
    files = [str(tests / f"test_{name}.py") for name in FILES]
    command = [sys.executable, "-m", "pytest", "-n", "auto", "-p", "no:cacheprovider", "-m", "", *files]
    patient = {"OMP_WAIT_POLICY": "PASSIVE"}  # threads that spin while they wait take six times as long
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "brief", **patient, **settings}
    return subprocess.run(command, cwd=tests.parent, env=environment, check=False).returncode == 0


def main() -> int:
    own = torch.backends.cpu.get_cpu_capability()
    print(f"this processor has {own}: covered by make test", flush=True)
    failed = []
    for name, settings in MACHINES.items():
        print(f"\n{name}: {' '.join(f'{key}={value!r}' for key, value in settings.items())}", flush=True)
        if settings.get("ATEN_CPU_CAPABILITY") == "avx2" and own not in ("AVX2", "AVX512"):
            print("skipped: this processor has no AVX2", flush=True)
            continue
        began = time.monotonic()
        if not run(settings):
            failed.append(name)
        print(f"{name}: {'failed' if name in failed else 'passed'} in {time.monotonic() - began:.0f} s", flush=True)
    print(f"\n{len(MACHINES)} machines, failed: {', '.join(failed) or 'none'}")
    return len(failed) > 0


if __name__ == "__main__":
    sys.exit(main())
