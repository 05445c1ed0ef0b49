"""Our CLIP against other code: transformers for the ViT and the texts, a float64 formula for the modified ResNet."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from openai_checkpoints import random_state, random_transformers_clip
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import conv2d, normalize

from pta.door.images import CLIP_PREPROCESSING
from pta.errors import InvalidParameter, UnavailableModel
from pta.models.clip.checkpoint import load_checkpoint
from pta.models.clip.encoder import ClipEncoder
from pta.models.clip.resnet import ModifiedResNet
from pta.models.clip.vit import VisionTransformer

TEXTS = ["a photo of a cat.", "dog", "itap of the large, very old Golden Gate Bridge in San Francisco."]
TOLERANCE = 1e-5


def some_images(size, count=2, seed=0):
    """Noise of several sizes of grain, so that the images differ in more than detail."""
    generator = torch.Generator().manual_seed(seed)
    grains = [torch.randn(count, 3, side, side, generator=generator) for side in (2, 8, size)]
    return sum(torch.nn.functional.interpolate(grain, size) for grain in grains)


def assert_same_and_not_all_alike(ours, reference):
    assert (ours - normalize(reference.to(ours.dtype), dim=-1)).abs().max() < TOLERANCE
    assert (ours @ ours.T).fill_diagonal_(0).max() < 0.999


@pytest.fixture(scope="module")
def vit():
    return ClipEncoder(random_state("ViT"), quick_gelu=True)


# -- the same features by other code ----------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
def test_a_vit_equals_that_of_transformers_whose_file_it_is_with_either_activation(tmp_path, activation):
    model = random_transformers_clip(activation)
    model.save_pretrained(tmp_path)
    encoder = load_checkpoint(str(tmp_path / "model.safetensors"))
    assert encoder.preprocess == replace(CLIP_PREPROCESSING, size=32)
    pixels = some_images(encoder.preprocess.size)
    ids, mask = encoder.tokenize(TEXTS)
    with torch.no_grad():
        images = model.get_image_features(pixels)
        texts = model.get_text_features(input_ids=ids, attention_mask=mask.long())
        if not isinstance(images, torch.Tensor):  # transformers 5
            images, texts = images.pooler_output, texts.pooler_output
    assert_same_and_not_all_alike(encoder.encode(pixels), images)
    assert_same_and_not_all_alike(encoder.encode_texts(TEXTS), texts)
    assert encoder.scale == pytest.approx(model.logit_scale.exp().item())


def test_the_modified_resnet_equals_a_float64_formula():
    state = random_state("RN50")
    encoder = ClipEncoder(state, quick_gelu=True)
    pixels = some_images(encoder.preprocess.size)
    features, stage3 = slow_resnet(state, pixels)
    assert_same_and_not_all_alike(encoder.encode(pixels), features)
    patches = normalize(stage3.flatten(2).transpose(1, 2), dim=-1).float()
    assert (encoder.encode_tokens(pixels) - patches).abs().max() < TOLERANCE


def test_full_size_towers_have_the_names_and_shapes_of_openais():
    with FakeTensorMode():  # shapes without numbers
        vit = VisionTransformer(random_state("ViT", small=False), head_width=64, quick_gelu=True)
        resnet = ModifiedResNet(random_state("RN50", small=False), head_width=64)
        pixels = torch.empty(2, 3, 224, 224)
        assert (vit(pixels).shape, resnet(pixels).shape) == ((2, 512), (2, 1024))
        assert vit.patches(pixels).shape == (2, 196, 512)
        assert resnet.patches(pixels).shape == (2, 196, 1024)
    assert (vit.architecture, vit.size, resnet.architecture, resnet.size) == ("ViT-B/16", 224, "RN50", 224)


def slow_resnet(state, pixels):
    """The features and the third stage of CLIP's ResNet, step by step in float64, from its description."""
    w = {name.removeprefix("visual."): weight.double() for name, weight in state.items()}

    def convolution(x, conv, norm, stride=1):
        """Convolution, then every channel brought to the mean and deviation it should have."""
        x = conv2d(x, w[f"{conv}.weight"], stride=stride, padding=w[f"{conv}.weight"].shape[-1] // 2)
        mean, variance, gain, shift = (
            w[f"{norm}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * gain + shift

    def halved(x):
        """The mean of each 2×2 square."""
        return (x[..., ::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, ::2] + x[..., 1::2, 1::2]) / 4

    x = pixels.double()
    for number in (1, 2, 3):
        x = convolution(x, f"conv{number}", f"bn{number}", stride=2 if number == 1 else 1).clamp(min=0)
    x, stages = halved(x), []
    for stage in (1, 2, 3, 4):
        for block in (f"layer{stage}.{number}" for number in range(99) if f"layer{stage}.{number}.conv1.weight" in w):
            narrow = stage > 1 and block.endswith(".0")
            y = convolution(x, f"{block}.conv1", f"{block}.bn1").clamp(min=0)
            y = convolution(y, f"{block}.conv2", f"{block}.bn2").clamp(min=0)
            y = convolution(halved(y) if narrow else y, f"{block}.conv3", f"{block}.bn3")
            if block.endswith(".0"):
                x = convolution(halved(x) if narrow else x, f"{block}.downsample.0", f"{block}.downsample.1")
            x = (x + y).clamp(min=0)
        stages.append(x)
    return slow_attention_pool(w, x), stages[2]


def slow_attention_pool(w, feature_map):
    """For each image and head: softmax of the mean's query with all keys, weighting the values."""
    w = {name.removeprefix("attnpool."): weight.numpy() for name, weight in w.items() if name.startswith("attnpool.")}
    rows = []
    for image in feature_map.flatten(2).transpose(1, 2).numpy():
        tokens = np.vstack([image.mean(axis=0), image]) + w["positional_embedding"]
        q, k, v = (tokens @ w[f"{part}_proj.weight"].T + w[f"{part}_proj.bias"] for part in "qkv")
        heads = []
        for head in (slice(start, start + 64) for start in range(0, tokens.shape[1], 64)):
            scores = np.exp(k[:, head] @ q[0, head] / np.sqrt(64))
            heads.append(scores / scores.sum() @ v[:, head])
        rows.append(np.concatenate(heads) @ w["c_proj.weight"].T + w["c_proj.bias"])
    return torch.tensor(np.array(rows))


# -- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filler", [0, 49407], ids=["zeros, as CLIP pads", "ends, as transformers pads"])
def test_padding_to_77_tokens_changes_no_feature(vit, filler):
    ids, mask = vit.tokenize(TEXTS)
    rest = 77 - ids.shape[1]
    long_ids = torch.nn.functional.pad(torch.where(mask, ids, filler), (0, rest), value=filler)
    long_mask = torch.nn.functional.pad(mask, (0, rest))
    features = vit.text_from_embeddings(vit.embed_ids(long_ids), long_mask)
    torch.testing.assert_close(features, vit.encode_texts(TEXTS), atol=TOLERANCE, rtol=0)


def test_the_fingerprint_knows_the_activation_and_every_weight():
    state = random_state("ViT")
    prints = {ClipEncoder(state, quick_gelu=quick).fingerprint for quick in (True, False)}
    state["visual.ln_post.bias"][3] += 1
    prints.add(ClipEncoder(state, quick_gelu=True).fingerprint)
    assert len(prints) == 3


def test_the_weights_are_copied():
    state = random_state("ViT")
    encoder = ClipEncoder(state, quick_gelu=True)
    before = encoder.encode_texts(TEXTS)
    for weight in state.values():
        weight.zero_()
    torch.testing.assert_close(encoder.encode_texts(TEXTS), before, atol=TOLERANCE, rtol=0)


def test_weights_by_columns_are_kept_by_rows():
    state = {name: one.T.contiguous().T if one.ndim == 2 else one for name, one in random_state("ViT").items()}
    assert all(one.is_contiguous() for one in ClipEncoder(state, quick_gelu=True).parameters())


# -- what is refused -------------------------------------------------------------------------------------------------


def test_a_resnet_whose_third_stage_has_other_channels_gives_no_patch_tokens():
    state = random_state("RN50")
    for name in ("text_projection", "visual.attnpool.c_proj.weight", "visual.attnpool.c_proj.bias"):
        state[name] = state[name][:, :128] if name == "text_projection" else state[name][:128]
    encoder = ClipEncoder(state, quick_gelu=True)
    with pytest.raises(InvalidParameter, match="gives no patch tokens"):
        encoder.encode_tokens(some_images(64))


def test_more_embeddings_than_the_tower_reads_are_refused(vit):
    with pytest.raises(InvalidParameter, match="78 token embeddings are more than the 77 that ViT"):
        vit.text_from_embeddings(torch.zeros(1, 78, 64), torch.ones(1, 78, dtype=torch.bool))


def without(name):
    return lambda state: state.pop(name)


def with_weight(name, *shape):
    return lambda state: state.update({name: torch.zeros(*shape)})


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("ViT", without("visual.conv1.weight"), "'visual.conv1.weight' is missing"),
        ("ViT", without("visual.transformer.resblocks.1.ln_2.bias"), "resblocks.1.ln_2.bias' is missing"),
        ("ViT", without("logit_scale"), "'logit_scale' is missing"),
        ("RN50", without("visual.layer2.1.bn3.running_var"), "'visual.layer2.1.bn3.running_var' is missing"),
        ("RN50", without("visual.attnpool.c_proj.weight"), "c_proj.weight' is missing"),
        ("ViT", with_weight("text_projection", 64, 31), "'text_projection' has shape 64×31, the others ask for 64×32"),
        ("ViT", with_weight("visual.conv1.weight", 128), "'visual.conv1.weight' has shape 128"),
        ("ViT", with_weight("visual.positional_embedding", 16, 128), "16 positions"),
        ("RN50", with_weight("visual.attnpool.positional_embedding", 4, 512), "4 positions"),
        ("ViT", with_weight("token_embedding.weight", 32000, 64), "reads 32000 different tokens"),
        ("ViT", with_weight("visual.attn_pool.query", 4), "the model has no weight 'visual.attn_pool.query'"),
        ("ViT", with_weight("transformer.resblocks.0.mlp.c_fc.weight", 300, 129), "cannot be divided into heads"),
    ],
)
def test_weights_that_are_no_clip_model_are_refused_by_the_name_of_what_is_wrong(kind, change, message):
    state = random_state(kind)
    change(state)
    with pytest.raises(UnavailableModel, match=message):
        ClipEncoder(state, quick_gelu=True)
