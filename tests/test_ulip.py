"""ULIP: its two files, its numbers against a plain NumPy forward, and the clouds it takes."""

from math import erf

import numpy as np
import pytest
import torch
from clouds import write_clouds
from hostile_archives import CALLS, before, with_pickle
from random_ulip import random_ulip, write_ulip

from pta.data import open_samples
from pta.data.features import load_features
from pta.data.prompts import build_classifier, load_templates
from pta.errors import InvalidSamples, UnavailableModel, UnreadableFile, UnreadableSample
from pta.measure.evaluate import evaluate
from pta.models import load_encoder
from pta.models.clouds.cloud_encoder import k_means
from pta.models.clouds.ulip import load_ulip
from pta.run.extract import extract
from pta.run.reading import Reading


@pytest.fixture(scope="module")
def state():
    return random_ulip(seed=3)


@pytest.fixture(scope="module")
def folder(state, tmp_path_factory):
    return write_ulip(tmp_path_factory.mktemp("ulip"), state)


@pytest.fixture(scope="module")
def ulip(folder):
    return load_encoder(f"ulip:{folder}")


def clouds(count, points, seed=0):
    """Clouds within the unit ball, of which every point may become a centre."""
    rows = np.random.default_rng(seed).standard_normal((count, points, 3))
    rows *= (
        np.random.default_rng(seed + 1).uniform(0.2, 1, (count, points, 1)) / np.linalg.norm(rows, axis=2)[..., None]
    )
    return torch.from_numpy(rows.astype(np.float32))


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


class NumpyUlip:
    """ULIP as its paper describes it, one cloud and one text at a time, in float64."""

    def __init__(self, state):
        self.w = {name: value.double().numpy() for name, value in state.items()}

    def linear(self, name, x):
        bias = self.w.get(f"{name}.bias", 0.0)
        return x @ self.w[f"{name}.weight"].reshape(len(self.w[f"{name}.weight"]), -1).T + bias

    def norm(self, name, x):
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(centred.var(axis=-1, keepdims=True) + 1e-5)
        return scaled * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def batch_norm(self, name, x):
        mean, variance = self.w[f"{name}.running_mean"], self.w[f"{name}.running_var"]
        return (x - mean) / np.sqrt(variance + 1e-5) * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def convolutions(self, name, x):
        hidden = np.maximum(self.batch_norm(f"{name}.1", self.linear(f"{name}.0", x)), 0)
        return self.linear(f"{name}.3", hidden)

    @staticmethod
    def attend(q, k, v, heads, visible=True):
        """L×width each."""
        mixed = []
        for own in np.split(np.arange(q.shape[1]), heads):
            scores = np.where(visible, q[:, own] @ k[:, own].T / np.sqrt(len(own)), -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed.append(weights / weights.sum(axis=1, keepdims=True) @ v[:, own])
        return np.concatenate(mixed, axis=1)

    def group(self, cloud):
        """Centres 512×3, and the 32 points nearest to each, relative to it."""
        squares = (cloud**2).sum(axis=1)
        chosen, nearest = [0], np.full(len(cloud), 1e10)
        for _ in range(511):
            nearest = np.minimum(nearest, ((cloud - cloud[chosen[-1]]) ** 2).sum(axis=1))
            chosen.append(int(np.argmax(np.where(squares > 1e-3, nearest, -1))))
        centres = cloud[chosen]
        distances = ((centres[:, None] - cloud) ** 2).sum(axis=2)
        return centres, cloud[np.argsort(distances, axis=1, kind="stable")[:, :32]] - centres[:, None]

    def tokens(self, cloud):
        centres, groups = self.group(cloud.astype(np.float64))
        tower = "point_encoder."
        tokens = [self.w[f"{tower}cls_token"][0, 0]]
        for points in groups:
            inner = self.convolutions(f"{tower}encoder.first_conv", points)
            whole = np.tile(inner.max(axis=0), (32, 1))
            inner = self.convolutions(f"{tower}encoder.second_conv", np.concatenate([whole, inner], axis=1))
            tokens.append(self.linear(f"{tower}reduce_dim", inner.max(axis=0)))
        hidden = gelu(self.linear(f"{tower}pos_embed.0", centres))
        positions = np.concatenate([self.w[f"{tower}cls_pos"][0], self.linear(f"{tower}pos_embed.2", hidden)])
        x = np.stack(tokens)
        for number in range(2):
            block = f"{tower}blocks.blocks.{number}."
            x = x + positions
            q, k, v = np.split(self.linear(f"{block}attn.qkv", self.norm(f"{block}norm1", x)), 3, axis=1)
            x = x + self.linear(f"{block}attn.proj", self.attend(q, k, v, heads=2))
            hidden = self.linear(f"{block}mlp.fc1", self.norm(f"{block}norm2", x))
            x = x + self.linear(f"{block}mlp.fc2", gelu(hidden))
        return self.norm(f"{tower}norm", x)

    def project(self, token, groups):
        feature = np.concatenate([token, groups]) @ self.w["pc_projection"]
        return feature / np.linalg.norm(feature)

    def cloud(self, cloud):
        tokens = self.tokens(cloud)
        return self.project(tokens[0], tokens[1:].max(axis=0))

    def text(self, ids):
        x = self.w["token_embedding.weight"][ids] + self.w["positional_embedding"][: len(ids)]
        visible = np.tril(np.ones((len(ids), len(ids)), bool))
        for number in range(2):
            block = f"transformer.resblocks.{number}."
            joined = self.norm(f"{block}ln_1", x) @ self.w[f"{block}attn.in_proj_weight"].T
            q, k, v = np.split(joined + self.w[f"{block}attn.in_proj_bias"], 3, axis=1)
            x = x + self.linear(f"{block}attn.out_proj", self.attend(q, k, v, 1, visible))
            hidden = self.linear(f"{block}mlp.c_fc", self.norm(f"{block}ln_2", x))
            x = x + self.linear(f"{block}mlp.c_proj", hidden / (1 + np.exp(-1.702 * hidden)))
        feature = self.norm("ln_final", x[-1]) @ self.w["text_projection"]
        return feature / np.linalg.norm(feature)


@pytest.mark.parametrize("points", [1024, 300, 32])
def test_clouds_are_encoded_as_the_paper_says(ulip, state, points):
    given = clouds(2, points)
    expected = np.stack([NumpyUlip(state).cloud(one.numpy()) for one in given])
    np.testing.assert_allclose(ulip.encode(given), expected, atol=1e-4)


def test_texts_are_read_by_the_tower_of_slip(ulip, state):
    texts = ["a point cloud model of a chair.", "There is a table in the scene."]
    ids, mask = ulip.tokenize(texts)
    expected = np.stack([NumpyUlip(state).text(row[own].numpy()) for row, own in zip(ids, mask, strict=True)])
    np.testing.assert_allclose(ulip.encode_texts(texts), expected, atol=1e-4)


def test_logits_are_a_hundred_cosines_whatever_the_weights_say(ulip, state):
    assert state["logit_scale"] != np.log(100)
    assert ulip.scale == 100


def test_prompts_can_be_tuned(ulip):
    tower = ulip.prompt_tower(["chair", "night_stand"], start="a point cloud of a")
    whole = ulip.encode_texts(["a point cloud of a chair.", "a point cloud of a night stand."])
    torch.testing.assert_close(tower.read(tower.context[None])[0], whole, atol=1e-5, rtol=0)


def test_a_batch_of_clouds_gives_what_one_by_one_gives(ulip):
    given = clouds(5, 700)
    for encode in (ulip.encode, ulip.encode_tokens):
        torch.testing.assert_close(encode(given), torch.cat([encode(one[None]) for one in given]), atol=1e-5, rtol=0)


def test_local_features_are_the_centres_of_the_group_tokens_behind_the_class_token(ulip, state):
    given = clouds(1, 400)
    ((token, groups),) = ulip._tokens(given)
    centres = k_means(groups, 3)[0]
    expected = [NumpyUlip(state).project(token[0].double(), centre.double()) for centre in centres]
    assert ulip.patch_count() == 3
    np.testing.assert_allclose(ulip.encode_tokens(given)[0], np.stack(expected), atol=1e-5)


def test_k_means_finds_clusters_that_lie_apart_and_survives_equal_rows():
    rng = np.random.default_rng(1)
    middles = 100 * rng.standard_normal((4, 3, 6))
    rows = torch.from_numpy(middles[:, rng.permutation(60) % 3] + rng.standard_normal((4, 60, 6)))
    for centres, own, around in zip(k_means(rows, 3), rows, middles, strict=True):
        nearest = np.linalg.norm(own.numpy()[:, None] - around, axis=2).argmin(axis=1)
        means = torch.stack([own[nearest == cluster].mean(dim=0) for cluster in range(3)])
        order = torch.cdist(means, centres).argmin(dim=1)
        torch.testing.assert_close(centres[order], means)
    assert k_means(torch.ones(2, 5, 4), 3).equal(torch.ones(2, 3, 4))


def test_lloyds_rounds_end_where_every_row_is_at_its_nearest_centre():
    rows = torch.from_numpy(np.random.default_rng(2).standard_normal((3, 200, 5)))
    centres = k_means(rows, 3)
    labels = torch.cdist(rows, centres).argmin(dim=2)
    for sample in range(3):
        means = [rows[sample][labels[sample] == cluster].mean(dim=0) for cluster in range(3)]
        torch.testing.assert_close(centres[sample], torch.stack(means))


def test_features_and_local_features_come_of_one_pass(ulip, monkeypatch):
    given, passes, tokens = clouds(3, 50), [], ulip._tokens
    expected = ulip.encode(given), ulip.encode_tokens(given)
    monkeypatch.setattr(type(ulip), "_tokens", lambda self, some: passes.append(len(some)) or tokens(some))
    assert all(map(torch.equal, ulip.encode_with_tokens(given), expected))
    assert passes == [3]


def test_legacy_sampling_depends_on_the_cloud_alone(folder, ulip):
    legacy, given = load_encoder(f"ulip:{folder}#legacy"), clouds(3, 700)
    found = legacy.encode(given)
    torch.testing.assert_close(torch.cat([legacy.encode(one[None]) for one in given.flip(0)]).flip(0), found)
    assert 1e-4 < (found - ulip.encode(given)).abs().max() < 0.5
    assert legacy.fingerprint != ulip.fingerprint


def test_half_precision_groups_points_as_single_precision_does(folder, ulip):
    half, given = load_encoder(f"ulip:{folder}", dtype="float16"), clouds(2, 300)
    assert half.encode(given).dtype == torch.float32
    torch.testing.assert_close(half.encode(given), ulip.encode(given), atol=0.02, rtol=0)


def test_the_paper_s_file_is_taken_unless_another_is_named(state, tmp_path):
    other = random_ulip(seed=4)
    write_ulip(tmp_path, other, "pointbert_ulip2.pt")
    assert load_ulip(str(tmp_path)).architecture == "ULIP-2 (PointBERT, SLIP texts)"
    write_ulip(tmp_path, state)
    assert load_ulip(str(tmp_path)).architecture == "ULIP (PointBERT)"
    assert load_ulip(f"{tmp_path}/pointbert_ulip2.pt").pc_projection.equal(other["pc_projection"])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda own: own.pop("point_encoder.blocks.blocks.1.attn.proj.bias"), "blocks.1.attn.proj.bias' is missing"),
        (lambda own: own.pop("ln_final.weight"), "'ln_final.weight' is missing"),
        (lambda own: own.update({"point_encoder.extra": torch.zeros(2)}), "no weight 'point_encoder.extra'"),
        (lambda own: own.update({"pc_projection": torch.zeros(7, 32)}), "'pc_projection' has shape 7×32"),
        (
            lambda own: own.update({"point_encoder.encoder.first_conv.0.weight": torch.zeros(16, 6, 1)}),
            "coloured ULIP-2 .6 channels.*ViT-bigG-14",
        ),
        (lambda own: own.update({"pc_projection": torch.zeros(256, 1280)}), "coloured ULIP-2 .*1280 dimensions"),
    ],
)
def test_weights_that_do_not_fit_are_named(state, change, complaint, tmp_path):
    changed = dict(state)
    change(changed)
    with pytest.raises(UnavailableModel, match=complaint):
        load_ulip(str(write_ulip(tmp_path, changed)))


def test_a_folder_without_the_files_says_which(tmp_path, state):
    with pytest.raises(UnreadableFile, match="no such folder or file"):
        load_ulip(str(tmp_path / "nowhere"))
    with pytest.raises(UnreadableFile, match=r"neither pointbert_ulip1\.pt nor pointbert_ulip2\.pt"):
        load_ulip(str(tmp_path))
    (write_ulip(tmp_path, state) / "slip_base_100ep.pt").unlink()
    with pytest.raises(UnreadableFile, match=r"holds no slip_base_100ep\.pt"):
        load_ulip(str(tmp_path))


@pytest.mark.parametrize("call", CALLS)
def test_no_code_in_the_files_is_run(folder, tmp_path, call):
    harm = tmp_path / "harm"
    for name in ("pointbert_ulip1.pt", "slip_base_100ep.pt"):
        with_pickle(folder / name, tmp_path / name, lambda honest: before(honest, CALLS[call](str(harm))))
    load_ulip(str(tmp_path))
    assert not harm.exists()


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (clouds(2, 31), "a cloud has 31 points; ULIP .PointBERT. needs at least 32"),
        (torch.zeros(2, 40, 6), "must be of shape N×points×3, not 2×40×6"),
        (torch.full((1, 40, 3), torch.nan), "not finite"),
    ],
)
def test_clouds_that_cannot_be_read_are_refused(ulip, given, complaint):
    with pytest.raises(InvalidSamples, match=complaint):
        ulip.encode(given)


def test_files_and_arrays_become_clouds_unless_they_are_too_small(ulip, tmp_path):
    path, (cloud,) = tmp_path / "chair.npy", clouds(1, 40).numpy()
    np.save(path, cloud)
    for given in (path, path.read_bytes(), cloud, torch.from_numpy(cloud)):
        assert (ulip.as_raw(given) == cloud).all()
    np.save(path, cloud[:31])
    with pytest.raises(UnreadableSample, match=r"chair\.npy: a cloud has 31 points"):
        ulip.as_raw(path)
    with pytest.raises(InvalidSamples, match="the cloud: point 3 is NaN"):
        ulip.as_raw(np.where(np.arange(40)[:, None] == 3, np.nan, cloud))


def test_clouds_go_from_a_file_through_ulip_to_point_cache(ulip, tmp_path):
    samples = open_samples(write_clouds(tmp_path / "shapes.h5"))
    classifier = build_classifier(ulip, samples.class_names, load_templates("ulip64"))
    extract(samples, ulip, classifier, tmp_path / "f.safetensors", Reading(patches=True))
    data = load_features(tmp_path / "f.safetensors")
    assert data.samples.patches.shape == (9, 3, ulip.dim)
    (found,) = evaluate(data, {"point-cache": {"prefill": True}}, [1])
    assert "saw 9 samples" in found.run.remarks[0]


def test_a_full_size_model_has_the_weights_of_the_released_files():
    shapes = {name: tuple(value.shape) for name, value in random_ulip(small=False).items()}
    points = [name for name in shapes if name.startswith(("point_encoder.", "pc_projection"))]
    assert (len(points), len(shapes) - len(points)) == (161, 150)
    assert shapes["point_encoder.blocks.blocks.11.attn.qkv.weight"] == (1152, 384)
    assert shapes["pc_projection"] == (768, 512)
    assert shapes["text_projection"] == (512, 512)
