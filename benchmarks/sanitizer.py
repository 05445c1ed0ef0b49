"""Whether NVIDIA's compute-sanitizer finds an error in the GPU kernels: an access out of bounds, a read of memory that
nothing has written, a race for shared memory, a barrier that not all threads reach.

    python benchmarks/sanitizer.py      writes benchmarks/results/gpu-sanitizer.csv; two minutes on an H200

Every kernel is launched in each of its forms, at sizes that fill no block. PyTorch allocates every tensor by itself, so
that a step beyond a tensor is a step beyond what was allocated.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import product

import torch
import triton
from result_file import RESULTS, write
from torch.nn.functional import normalize

from pta.core.classifier import ZeroShotClassifier
from pta.engines.gpu import processors
from pta.engines.gpu.triton import advance_on_gpu
from pta.engines.gpu.triton_ahead import ahead_on
from pta.engines.gpu.triton_few_tokens import TILINGS, attended, small_product
from pta.engines.gpu.triton_touches import table_of
from pta.engines.gpu.triton_transformer import add_and_normalise, linear_with_gelu
from pta.engines.pta.rule import Prototypes, Rule
from pta.methods import create_adapter

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
SIZES = ((5, 20, 41), (13, 130, 9), (2500, 20, 6))  # classes, dim, samples; the last has several blocks of classes
RELEASED = Rule(20.0, 0.01, 0.1, "recursive", "update-first", "saturating", renormalise=True)
RULES = (
    RELEASED,
    replace(RELEASED, renormalise=False),
    replace(RELEASED, anchor="fixed", order="predict-first", weight="raw"),
)


def launch_every_kernel() -> None:
    """Learn streams in batches and one by one, with probabilities at the threshold, which are computed again."""
    generator = torch.Generator("cuda").manual_seed(0)
    for (classes, dim, count), rule, fused in product(SIZES, RULES, (True, False)):
        anchors = normalize(torch.randn(classes, dim, device="cuda", generator=generator))
        classifier = ZeroShotClassifier(anchors, [str(c) for c in range(classes)], scale=20.0)
        features = normalize(anchors[torch.arange(count, device="cuda") % 3] + 0.3)
        z = classifier.logits(features)
        probabilities = z.softmax(dim=1)
        rule = replace(rule, min_probability=float(probabilities[0].max()))
        for piece, given in ((slice(0, 1), False), (slice(1, count), False), (slice(0, count), True)):
            table = table_of(probabilities[piece], rule) if given else None
            state = Prototypes.fresh(classifier.anchors), classifier
            onto = z[piece] if fused else None
            scores = advance_on_gpu(*state, features[piece], z[piece], rule, onto=onto, table=table)
            assert torch.isfinite(scores).all()
        if fused and rule.anchor == "fixed":  # once for each size
            for depth in (1, 2):  # in float32 and in float64
                adapter = create_adapter("wpta", classifier, depth=depth)
                for piece in (slice(0, 1), slice(1, 2), slice(2, count)):
                    assert torch.isfinite(adapter.step_unchecked(features[piece])).all()
    if processors.transformer_runs_on(torch.device("cuda")):
        for rows, width, quick in ((5, 64, True), (300, 72, False)):
            x, weight = torch.ones(rows, width, device="cuda").half(), torch.ones(520, width, device="cuda").half()
            add_and_normalise(x, x.clone(), weight[0], weight[0], weight[0])
            add_and_normalise(
                x,
                small_product(TILINGS["down"], x, weight[:width]),
                None,
                weight[0],
                weight[0],
                warps=4,
                launched=ahead_on(x.device),
            )
            attended(
                small_product(TILINGS["qkv"], x, weight[: 3 * width], weight[: 3 * width, 0].contiguous()), 1, 1, rows
            )
            add_and_normalise(x, None, None, weight[0], weight[0])
            assert torch.isfinite(linear_with_gelu(x, weight, weight.flatten()[:520].contiguous(), quick)).all()


def errors_found_by(tool: str) -> tuple[int, str]:
    """How many errors a tool of compute-sanitizer reports, and everything it says."""
    command = ["compute-sanitizer", "--tool", tool, sys.executable, __file__, "--launch"]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    summary = re.search(r"SUMMARY: (\d+) (?:error|hazard)", said)
    if done.returncode or not summary:
        raise RuntimeError(f"{tool} did not run to its end:\n{said}")
    return int(summary[1]), said


def what_is_missing() -> str | None:
    """What this machine lacks, if anything."""
    if not torch.cuda.is_available():
        return "no GPU"
    return None if shutil.which("compute-sanitizer") else "CUDA's compute-sanitizer is not on the PATH"


def kernels_in(said: str) -> str:
    """The kernels that the reports name; of many reports, the tools print the first hundred."""
    return " ".join(sorted(set(re.findall(r"^=+\s+at (?:0x\w+ in )?(\w+)\+?", said, re.MULTILINE))))


def main() -> None:
    if lacks := what_is_missing():
        sys.exit(lacks)
    about = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True, check=True).stdout
    version = about.partition("Version ")[2].split()[0]
    versions = f"torch {torch.__version__}; triton {triton.__version__}; compute-sanitizer {version}"
    hardware = f"{torch.cuda.get_device_name()}; {versions}"
    found = ((tool, *errors_found_by(tool)) for tool in TOOLS)
    rows = ({"tool": tool, "errors": errors, "kernels": kernels_in(said)} for tool, errors, said in found)
    write(RESULTS / "gpu-sanitizer.csv", (row | {"hardware": hardware} for row in rows))


if __name__ == "__main__":
    launch_every_kernel() if "--launch" in sys.argv else main()
