"""Compiles the GPU's kernels for real GPUs, of which none is needed; run without Triton's interpreter.

The interpreter is more lenient than the compiler, which wants every variable to keep its type.
"""

import itertools
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pta.door.images.ragged_kernel import resize_lines
from pta.engines.gpu import triton_few_tokens as few
from pta.engines.gpu import triton_kernels as kernels
from pta.engines.gpu import triton_metric as metric
from pta.engines.gpu import triton_prior as prior
from pta.engines.gpu import triton_stages as stages
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
    capability: int,
    kernel: triton.JITFunction,
    constants: dict[str, object],
    types: dict[str, str] = TYPES,
    num_warps: int = 2,
) -> None:
    signature = {
        name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.signature.parameters
    }
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(name),): value for name, value in constants.items()})
    triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": num_warps})


def compile_few_tokens(capability: int, types: dict[str, str]) -> None:
    """What is launched ahead is for GPUs from 9.0."""
    if capability < 90:
        return
    numbers = dict.fromkeys(("rows", "outputs", "inputs", "length", "queries", "width"), "i32")
    types = types | numbers | {"projected": "*fp16", "scale": "fp32", "x": "*fp16", "weight": "*fp16"}
    for name, quick in {"qkv": None, "up": True, "down": None}.items():
        M, N, K, parts, warps, _ = few.TILINGS[name]
        own = {"x": f"tensordesc<fp16[{M}, {K}]>", "blocks": f"tensordesc<fp16[{N}, {K}]>", "weight": "*fp16"}
        given: dict[str, object] = {"QUICK": quick, "M": M, "N": N, "K": K, "PARTS": parts, "AHEAD": True}
        if name == "down":
            own, given = own | {"out": "*fp32"}, given | {"bias": None}
        compile_for(capability, few._product, given, types | {"out": "*fp16"} | own, warps)
    sizes = {"HEAD": 64, "D": 64, "M": few.QUERIES, "N": few.KEYS}
    compile_for(capability, few._attended, sizes | {"AHEAD": True}, types | {"out": "*fp16"}, few.ATTENTION_WARPS)
    switches = {"PARTS": 4, "HAS_BIAS": True, "D": 1024, "AHEAD": True}
    compile_for(
        capability,
        transformer._add_and_normalise,
        switches,
        types | {"branch": "*fp32", "out": "*fp16"},
        few.NORM_WARPS,
    )


SWITCHES = ("RECURSIVE", "RENORMALISE", "UPDATE_FIRST", "SATURATING", "ONTO")


def main(capability: int) -> None:
    ahead = {"AHEAD": capability >= 90}
    for blocks in (1, 8):
        compile_for(capability, touches._find_touches, {"BLOCK": 1024, "BLOCKS": blocks})
    compile_for(capability, touches._score_exactly, ahead, TYPES | {"z": "*fp64"})
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
    exact = TYPES | dict.fromkeys(("z", "shifted", "softmax"), "*fp64")
    compile_for(capability, prior._softmax, {"BLOCK": 1024}, exact)
    compile_for(capability, prior._learn_one, {"BLOCK": 1024} | ahead, exact)
    for samples, blocks in ((128, 1), (2, 64)):
        compile_for(capability, prior._follow, {"SAMPLES": samples, "BLOCK": 16}, exact)
        compile_for(capability, prior._shift, {"SAMPLES": samples, "BLOCKS": blocks, "BLOCK": 1024}, exact)
    doubles = ("w", "z", "total", "gram", "between", "excess", "own_squares", "grid", "gaps", "opened", "tau")
    numbers = ("least", "least_rest", "factor", "factor_rest", "ridge", "ridge_rest", "early", "early_rest")
    wide = exact | dict.fromkeys(doubles, "*fp64") | dict.fromkeys(numbers, "fp32")
    wide |= {"seen": "*i64", "C": "i32", "inverse": "fp32", "inverse_rest": "fp32"}
    for precision, samples in itertools.product(("*fp32", "*fp64"), (2, 128)):
        names = ("metric", "turned", "texts", "rows", "products", "within", "scores", "relative", "logits", "answers")
        types = wide | dict.fromkeys(names, precision)
        compile_for(capability, whitened._turn, {"D": 512, "COUNTS": samples == 2} | ahead, types)
        compile_for(capability, whitened._learn, {"D": 512} | ahead, types)
        compile_for(capability, whitened._put_row, {"D": 512}, types)
        compile_for(capability, whitened._follow, {"SAMPLES": samples, "CLASSES": 8}, types)
        put = types | {"ridge_found": "*fp64", "apart": "*fp64", "first_metric": "i32"}
        compile_for(capability, metric._put_apart, {"D": 512}, put)
        compile_for(capability, metric._put_relative, {"D": 512}, put)
        switches = {"GATE": samples == 2, "MATCHED": True} | ahead
        compile_for(capability, stages._contribute, {"MATCHED": True, "BLOCK": 256} | ahead, types)
        compile_for(capability, stages._temper, switches | {"SAMPLES": samples}, types)
        compile_for(capability, stages._answer, switches | {"SAMPLES": samples, "CLASSES": 16}, types)
    compile_for(capability, stages._open, {"BLOCK": 1024}, wide)
    M, N, K = metric._BLOCK
    for precision in ("tf32x3", "tf32"):
        constants = {"ONTO": precision == "tf32", "PRECISION": precision, "M": M, "N": N, "K": K}
        compile_for(
            capability,
            metric._add_product,
            constants,
            wide | {"rows": "i32", "columns": "i32", "dim": "i32", "beta": "fp32", "alpha": "fp32"},
        )
    half = dict.fromkeys(("x", "branch", "weight", "shift", "into", "out"), "*fp16") | {
        "bias": "*fp16",
        "stride": "i32",
        "width": "i32",
        "eps": "fp32",
    }
    for parts, has_bias in ((0, False), (1, True)):
        switches = {"PARTS": parts, "HAS_BIAS": has_bias, "D": 1024, "AHEAD": False}
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
    compile_few_tokens(capability, TYPES | half)
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
