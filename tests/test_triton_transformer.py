"""The kernels of a vision transformer: on a GPU where there is one that has them, otherwise in Triton's interpreter."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cosine_similarity, gelu, layer_norm, linear, scaled_dot_product_attention

pytest.importorskip("triton")

from random_clip import random_state

from pta.engines.gpu import processors, triton_few_tokens, triton_transformer
from pta.engines.gpu.triton_few_tokens import Tiling, attended, class_tokens_of_few, small_product
from pta.engines.gpu.triton_transformer import add_and_normalise, class_tokens, linear_with_gelu
from pta.models.clip.encoder import ClipEncoder
from pta.models.clip.transformer import ClipBlock

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
pytestmark = pytest.mark.skipif(
    HAS_GPU and torch.cuda.get_device_capability() < (9, 0), reason="the GPU is older than the kernels"
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks that the interpreter computes soon, and three processors for them."""
    if not HAS_GPU:
        monkeypatch.setattr(triton_transformer, "_BLOCK", (32, 32, 16))
        monkeypatch.setattr(triton_transformer, "_NEIGHBOURS", 2)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=3)
        )


def numbers(*shape, dtype=torch.float16, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


# Triton's interpreter has no products in bfloat16.
DTYPES = [torch.float16, torch.bfloat16] if HAS_GPU else [torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 16, 16), (70, 48, 96), (300, 64, 40)])
def test_a_product_with_its_activation_is_that_of_float64(rows, inputs, outputs, quick, dtype):
    x, weight, bias = numbers(rows, inputs, dtype=dtype), numbers(outputs, inputs, dtype=dtype), numbers(outputs)
    bias = bias.to(dtype)
    plain = linear(x.double(), weight.double(), bias.double())
    expected = plain * torch.sigmoid(1.702 * plain) if quick else gelu(plain)
    found = linear_with_gelu(x, weight, bias, quick).double()
    assert (found - expected).norm() <= (2e-3 if dtype == torch.float16 else 1e-2) * expected.norm()


def in_half_precision(found, expected, dtype=torch.float16):
    return (found.double() - expected).norm() <= (2e-3 if dtype == torch.float16 else 1e-2) * expected.norm()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("quick", [True, False, None])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 16, 16), (70, 48, 96), (197, 72, 40)])
def test_a_product_of_few_rows_is_that_of_float64(rows, inputs, outputs, quick, dtype):
    x, weight, bias = (numbers(*shape, dtype=dtype) for shape in ((rows, inputs), (outputs, inputs), (outputs,)))
    plain = linear(x.double(), weight.double(), bias.double())
    expected = plain if quick is None else plain * torch.sigmoid(1.702 * plain) if quick else gelu(plain)
    assert in_half_precision(small_product(Tiling(64, 32, 64), x, weight, bias, quick), expected, dtype)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 16, 16), (70, 80, 96)])
def test_the_parts_of_a_product_add_up_in_the_layer_norm(rows, inputs, outputs, parts):
    x, weight, rest = numbers(rows, inputs), numbers(outputs, inputs, seed=1), numbers(rows, outputs, seed=2)
    bias, scale, shift = (numbers(outputs, seed=seed) for seed in (3, 4, 5))
    found = small_product(Tiling(64, 32, 16, parts), x, weight)
    assert found.shape == (parts, rows, outputs)
    expected = x.double() @ weight.double().T
    assert in_half_precision(found.sum(0), expected)
    expected += rest.double() + bias.double()
    normal = add_and_normalise(rest, found, bias, scale, shift, warps=4)
    assert in_half_precision(rest, expected)
    assert in_half_precision(normal, layer_norm(expected, (outputs,), scale.double(), shift.double()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("first_alone", [True, False])
@pytest.mark.parametrize(("samples", "length", "heads", "head"), [(1, 197, 2, 64), (2, 50, 3, 16), (1, 257, 1, 24)])
def test_attention_is_that_of_float64(samples, length, heads, head, first_alone, dtype):
    projected = 2 * numbers(samples * length, 3 * heads * head, dtype=dtype)
    q, k, v = projected.double().view(samples, length, 3, heads, head).permute(2, 0, 3, 1, 4)
    expected = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    queries = 1 if first_alone else length
    found = attended(projected, samples, heads, queries)
    assert in_half_precision(found, expected[:, :queries].flatten(0, 1), dtype)


@pytest.mark.parametrize(("has_branch", "has_bias"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("width", [40, 64])
def test_a_layer_norm_adds_what_it_is_given_and_keeps_the_sum_of_a_branch(width, has_branch, has_bias):
    x, branch, bias, weight, shift = (
        numbers(*shape, seed=i) for i, shape in enumerate([(9, width)] * 2 + [(width,)] * 3)
    )
    before, total = x.clone(), x.double() + (branch if has_branch else 0) + (bias if has_bias else 0)
    found = add_and_normalise(x, branch if has_branch else None, bias if has_bias else None, weight, shift)
    expected = layer_norm(total, (width,), weight.double(), shift.double())
    assert torch.allclose(found.double(), expected, atol=5e-3, rtol=2e-3)
    assert torch.allclose(x.double(), total, atol=5e-3, rtol=2e-3) if has_branch else torch.equal(x, before)


@pytest.mark.parametrize("kernels", [class_tokens, class_tokens_of_few])
@pytest.mark.parametrize("samples", [1, 9])
@pytest.mark.parametrize("quick", [True, False])
def test_class_tokens_are_those_of_the_blocks(quick, samples, kernels):
    blocks = ClipEncoder(random_state("ViT"), quick_gelu=quick).visual.transformer
    x = numbers(samples, 17, 128)
    expected = blocks.double().to(DEVICE).first(x.double())
    given = x.clone()
    found = kernels(given, list(blocks.half().parameters()), blocks._heads, quick)
    assert torch.equal(given, x)
    assert cosine_similarity(found.double(), expected).min() > 0.99999
    assert (found - expected).norm() < 5e-3 * expected.norm()


def test_nothing_has_these_kernels_without_a_gpu():
    assert HAS_GPU or not processors.transformer_runs_on(torch.device("cpu"))
    assert not ClipEncoder(random_state("ViT"), quick_gelu=True).ready().visual.transformer.has_kernels


@pytest.mark.parametrize(
    ("given", "hidden", "with_gradients", "has_kernels"),
    [
        ({}, 512, False, True),
        ({"dtype": torch.bfloat16}, 512, False, True),
        ({"dtype": torch.float32}, 512, False, False),
        ({"is_cuda": False}, 512, False, False),
        ({"shape": (241, 17, 128)}, 512, False, True),
        ({"shape": (240, 17, 128)}, 512, False, False),
        ({"shape": (1, 197, 128)}, 512, False, True),
        ({"shape": (1, 197, 128)}, 508, False, False),
        ({}, 508, False, False),
        ({}, 512, True, False),
    ],
)
def test_kernels_are_for_many_or_few_aligned_rows_in_half_precision_without_gradients(
    monkeypatch, given, hidden, with_gradients, has_kernels
):
    state = random_state("ViT")
    if hidden == 508:
        for name in state:
            if name.startswith("visual.") and ".mlp." in name and not name.endswith("c_proj.bias"):
                state[name] = state[name][:hidden] if ".c_fc." in name else state[name][:, :hidden]
    transformer = ClipEncoder(state, quick_gelu=True).visual.transformer
    transformer.has_kernels = True
    for one in (triton_transformer, "class_tokens"), (triton_few_tokens, "class_tokens_of_few"):
        monkeypatch.setattr(*one, lambda *given: torch.zeros(1))
    monkeypatch.setattr(ClipBlock, "forward", lambda block, x: x)
    monkeypatch.setattr(ClipBlock, "first", lambda block, x: torch.ones(1, 1))
    x = SimpleNamespace(**{"is_cuda": True, "dtype": torch.float16, "shape": (256, 17, 128)} | given)
    with torch.set_grad_enabled(with_gradients):
        assert transformer.first(x) == (0 if has_kernels else 1)


@pytest.mark.parametrize(
    ("batch", "dtype", "has_kernels", "expected"),
    [
        (241, torch.float16, True, True),
        (240, torch.float16, True, False),
        (241, torch.float32, True, False),
        (241, torch.float16, False, False),
    ],
)
def test_a_model_says_for_which_batches_it_has_kernels(batch, dtype, has_kernels, expected):
    encoder = ClipEncoder(random_state("ViT"), quick_gelu=True).ready(dtype=dtype)
    assert len(encoder.visual.positional_embedding) == 17
    encoder.visual.transformer.has_kernels = has_kernels
    assert encoder.has_kernels_for(batch) == expected


def test_a_resnet_has_no_kernels():
    assert not ClipEncoder(random_state("RN"), quick_gelu=True).has_kernels_for(10**6)


@pytest.mark.skipif(not HAS_GPU, reason="no GPU")
@pytest.mark.parametrize("count", [1, 64])
def test_features_are_those_of_pytorchs_own_kernels(count):
    encoder = ClipEncoder(random_state("ViT", small=False), quick_gelu=True).ready("cuda", torch.float16)
    pixels = torch.randint(0, 256, (count, 3, 224, 224), dtype=torch.uint8, device="cuda")
    assert encoder.visual.transformer.has_kernels
    ours = encoder.encode(pixels)
    encoder.visual.transformer.has_kernels = False
    assert (ours * encoder.encode(pixels)).sum(dim=1).min() > 0.99999
