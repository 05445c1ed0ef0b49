"""Compiles the GPU's kernels for real GPUs, of which none is needed; run without Triton's interpreter.

The interpreter is more lenient than the compiler, which wants every variable to keep its type.
"""

import itertools
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pta.door.images.ragged_kernel import resize_lines
from pta.engines.gpu import triton_kernels as kernels
from pta.engines.gpu import triton_prior as prior
from pta.engines.gpu import triton_touches as touches
from pta.engines.gpu import triton_transformer as transformer
from pta.engines.gpu import triton_whitened as whitened

TYPES = {
    "rests": "*i32",
    "fields": "*i64",
    "first": "*i32",
    "lengths": "*fp64",
    "touched": "*i1",
    "resting": "*i1",
    "count": "*i64",
    **dict.fromkeys(
        ("s", "fast", "slow", "mean", "found", "by_chance", "before", "recent", "parts", "log_prior"), "*fp64"
    ),
    **dict.fromkeys(("x", "centre", "sums", "weights", "squares"), "*fp64"),
    **dict.fromkeys(("B", "C", "d", "blocks", "size", "rows"), "i32"),
    **dict.fromkeys(("scale", "scale_rest", "bias", "bias_rest", "h", "w", "w_rest", "push"), "fp32"),
    **dict.fromkeys(("threshold", "doubt", "within"), "fp32"),
}
SIZES = {"D": 512, "SAMPLES": 256, "CLASSES": 1024, "ROWS": 8}


def compile_for(
    capability: int, kernel: triton.JITFunction, constants: dict[str, object], types: dict[str, str] = TYPES
) -> None:
    signature = {
        name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.signature.parameters
    }
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(name),): value for name, value in constants.items()})
    triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 2})


SWITCHES = ("RECURSIVE", "RENORMALISE", "UPDATE_FIRST", "SATURATING", "ONTO")


def main(capability: int) -> None:
    for blocks in (1, 8):
        compile_for(capability, touches._find_touches, {"BLOCK": 1024, "BLOCKS": blocks})
    compile_for(capability, touches._score_exactly, {}, TYPES | {"z": "*fp64"})
    compile_for(capability, touches._sum_blocks, {"BLOCK": 1024})
    for near in (True, False):
        compile_for(
            capability,
            resize_lines,
            {"FIELDS": 12, "BITS": 22, "LINES": 16, "PIXELS": 64, "LINES_ARE_NEAR": near},
            TYPES | {"weights": "*i32"},
        )
    for onto in (True, False):
        compile_for(capability, kernels.score_rested, {"ONTO": onto, "ROWS": 32, "NUMBERS": 128})
    compile_for(capability, prior._follow, {"BLOCK": 32})
    compile_for(capability, prior._shift, {"SAMPLES": 128, "BLOCKS": 32, "BLOCK": 1024})
    compile_for(capability, prior._shift, {"SAMPLES": 1, "BLOCKS": 1, "BLOCK": 2})
    for precision in ("*fp32", "*fp64"):
        wide = TYPES | {"w": "*fp64"} | dict.fromkeys(("metric", "turned", "texts", "cosines"), precision)
        for kernel in (whitened._turn, whitened._learn):
            compile_for(capability, kernel, {"D": 512}, wide)
    half = dict.fromkeys(("x", "branch", "weight", "shift", "out"), "*fp16") | {
        "bias": "*fp16",
        "width": "i32",
        "eps": "fp32",
    }
    for given in (True, False):
        switches = {"HAS_BRANCH": given, "HAS_BIAS": given, "D": 1024}
        compile_for(capability, transformer._add_and_normalise, switches, TYPES | half)
    M, N, K = transformer._BLOCK
    blocks = {"x": (M, K), "weight": (N, K), "out": (M, N // 2)}
    half |= {name: f"tensordesc<fp16[{rows}, {columns}]>" for name, (rows, columns) in blocks.items()}
    for quick in (True, False) if capability >= 90 else ():
        sizes = {"M": M, "N": N, "K": K, "NEIGHBOURS": 8}
        compile_for(
            capability,
            transformer._linear_with_gelu,
            {"QUICK": quick} | sizes,
            TYPES | half | dict.fromkeys(("outputs", "inputs"), "i32"),
        )
    # Types are the same for all GPUs, so that every switch alone is tried for the one that .ci/run adds.
    alone = itertools.combinations(SWITCHES, 1) if capability == 80 else ()
    for off in ((), *alone, SWITCHES[1:]):
        switches = {name: name not in off for name in SWITCHES}
        for kernel in (kernels.step, kernels.follow):
            sizes = {name: size for name, size in SIZES.items() if name in kernel.arg_names}
            compile_for(capability, kernel, switches | sizes)
    print("compiled")


if __name__ == "__main__":
    main(int(sys.argv[1]))
