"""TPT, C-TPT, DiffTPT and HisTPT: the logits of their loops, and of programs that backpropagate as the authors' do."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from streams import cuts
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

import pta
from pta.core.samples import Samples
from pta.data.fashion import load_fashion_test
from pta.data.views import make_views
from pta.engines.prompts.prompt_gradients import PromptGradients
from pta.errors import InvalidParameter
from pta.methods.toys import ToyModel
from pta.models import load_encoder
from pta.reference.difftpt import difftpt_augmented_loop, difftpt_loop
from pta.reference.histpt import histpt_loop
from pta.reference.tpt import tpt_loop

NAMES = [f"class {number}" for number in range(12)]


def toy(count=6, views=20, dtype=torch.float64, seed=1, scale=20.0):
    """A few samples around the classes of a toy model, as the loops and the methods take them."""
    rng = torch.Generator().manual_seed(seed)
    model = ToyModel(16, dtype)
    tower = model.prompt_tower(NAMES)
    anchors = tower.read(tower.context[None])[0]
    labels = torch.randint(len(NAMES), (count,), generator=rng)

    def around(number):
        noise = torch.randn(count, number, 16, generator=rng, dtype=torch.float64)
        return normalize(anchors[labels][:, None] + 0.25 * noise.to(dtype), dim=2)

    own, generated = around(views), around(8)
    return SimpleNamespace(
        model=model,
        tower=tower,
        classifier=pta.ZeroShotClassifier(anchors, NAMES, scale=scale),
        samples=Samples(own[:, 0], views=own, generated=generated),
        read=lambda context: tower.read(torch.as_tensor(context)[None])[0].numpy(),
        context=tower.context.numpy(),
        views=own.numpy(),
        generated=generated.numpy(),
        scale=scale,
    )


CASES = [
    ("tpt", tpt_loop, {}),
    ("tpt", tpt_loop, {"steps": 4, "keep": 0.5, "weight_decay": 0.1}),
    ("tpt", tpt_loop, {"ctpt": 3.0, "lr": 0.02}),
    ("tpt", tpt_loop, {"keep": 0.0}),
    ("difftpt", difftpt_loop, {}),
    ("difftpt", difftpt_loop, {"keep": 0.5, "keep_similar": 0.4, "steps": 1}),
    ("difftpt-augmented", difftpt_augmented_loop, {}),
    ("histpt", histpt_loop, {"slots": 4, "uncertain": 2, "momentum": 0.7}),
    ("histpt", histpt_loop, {"slots": 3, "uncertain": 3, "answer": "fused", "keep": 0.5}),
]


@pytest.mark.parametrize(("method", "loop", "parameters"), CASES)
def test_the_logits_are_those_of_the_loop(method, loop, parameters):
    data = toy()
    given = {"generated": data.generated} if method == "difftpt" else {}
    expected = loop(data.read, data.context, data.views, scale=data.scale, **given, **parameters)
    adapter = pta.create_adapter(method, data.classifier, model=data.model, **parameters)
    np.testing.assert_allclose(adapter.step(data.samples), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("parameter", ["lr", "weight_decay", "ctpt", "steps", "keep"])
def test_each_parameter_makes_a_difference(parameter):
    data = toy()
    other = {"lr": 0.1, "weight_decay": 1.0, "ctpt": 50.0, "steps": 3, "keep": 0.9}[parameter]
    plain, changed = (
        pta.create_adapter("tpt", data.classifier, model=data.model, **given).step(data.samples)
        for given in ({}, {parameter: other})
    )
    assert (plain - changed).abs().max() > 1e-3


# -- programs that backpropagate, one image at a time, on the packaged encoder ----------------------------------------


@pytest.fixture(scope="module")
def fashion():
    """Packaged images: features of 64 views, of 63 other crops in the place of generated pictures, and anchors."""
    encoder, test = load_encoder("embedded"), load_fashion_test()
    images = map(Image.fromarray, test.images[: repeated(50)])
    made = (make_views(one, encoder.preprocess, count=128, mode="augmix", seed=n) for n, one in enumerate(images))
    rows = torch.stack([encoder.encode(one) for one in made])
    anchors = encoder.encode_texts([f"a photo of a {name}." for name in test.class_names])
    classifier = pta.ZeroShotClassifier(anchors, test.class_names, scale=100.0)
    samples = Samples(rows[:, 0], views=rows[:, :65], generated=rows[:, 65:])
    return SimpleNamespace(encoder=encoder, classifier=classifier, samples=samples)


def mean_entropy(logits):
    """As the released program writes it."""
    log_p = logits.log_softmax(dim=1)
    mean = log_p.logsumexp(dim=0) - np.log(len(logits))
    return -(mean.clamp_min(torch.finfo(mean.dtype).min) * mean.exp()).sum()


def released_tpt(fashion, *, steps=1, select, lambda_term=0.0):
    """One image at a time: every class's whole prompt forward, backward, a step of AdamW, forward."""
    encoder, names = fashion.encoder, fashion.classifier.class_names
    ids, mask = encoder.tokenize([f"a photo of a {name.replace('_', ' ')}." for name in names])
    words = encoder.prompt_tower(names).context
    first = int((encoder.embed_ids(ids)[0, :3] == words[0]).all(dim=1).nonzero()[0])

    def read(context):
        embeddings = encoder.embed_ids(ids).detach()
        own = [embeddings[:, :first], context.expand(len(ids), -1, -1), embeddings[:, first + len(context) :]]
        return encoder.text_from_embeddings(torch.cat(own, dim=1), mask)

    answers, chosen = [], []
    for views, generated in zip(fashion.samples.views, fashion.samples.generated, strict=True):
        context = words.clone().requires_grad_()
        optimiser = torch.optim.AdamW([context], lr=5e-3)
        kept = None
        for _ in range(steps):
            T = read(context)
            rows = views if select is most_confident else torch.cat([views, generated])
            logits = 100 * rows @ T.T
            kept = select(logits.detach()) if kept is None else kept
            spread = (T - T.mean(dim=0)).norm(dim=1).mean()
            loss = mean_entropy(logits[kept]) - lambda_term * spread
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        answers.append((100 * views[:1] @ read(context).T)[0].detach())
        chosen.append(kept)
    return torch.stack(answers), torch.stack(chosen)


def entropies(logits):
    return -(logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1)


def most_confident(logits):
    return entropies(logits).argsort()[: int(len(logits) * 0.1)]


def similar_and_confident(logits):
    similarity = cosine_similarity(logits[:1], logits[1:])
    similar = torch.cat([torch.zeros(1, dtype=torch.long), 1 + similarity.argsort(descending=True)[: int(127 * 0.8)]])
    return similar[entropies(logits[similar]).argsort()[: int(len(similar) * 0.3)]]


@pytest.mark.parametrize(
    ("method", "parameters", "released"),
    [
        ("tpt", {}, {"select": most_confident}),
        ("tpt", {"steps": 4}, {"select": most_confident, "steps": 4}),
        ("tpt", {"ctpt": 50.0}, {"select": most_confident, "lambda_term": 50.0}),
    ],
    ids=["tpt", "tpt-4", "ctpt"],
)
def test_the_answers_are_those_of_a_program_that_backpropagates(fashion, method, parameters, released):
    expected, chosen = released_tpt(fashion, **released)
    adapter = pta.create_adapter(method, fashion.classifier, model=fashion.encoder, **parameters)
    logits = adapter.step(fashion.samples)
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=0)
    assert torch.equal(logits.argmax(dim=1), expected.argmax(dim=1))
    rows = adapter._views(fashion.samples)
    selected = adapter._selected(rows, 100 * rows.double() @ adapter._initial.double().T)
    assert torch.equal(selected, rows.take_along_dim(chosen[:, :, None], dim=1))


def test_difftpt_filters_and_answers_as_a_program_in_float64_does(fashion):
    """Its gradients are small: in float32 such a program is up to 0.2 away from itself in float64."""
    exact = fashion.samples[:12]
    exact = Samples(
        *(normalize(one.double(), dim=-1) for one in (exact.features, exact.views)), generated=exact.generated.double()
    )
    encoder = copy.deepcopy(fashion.encoder).double()
    expected, chosen = released_tpt(
        SimpleNamespace(encoder=encoder, classifier=fashion.classifier, samples=exact),
        select=similar_and_confident,
        steps=4,
    )
    adapter = pta.create_adapter("difftpt", fashion.classifier, model=fashion.encoder)
    torch.testing.assert_close(adapter.step(fashion.samples[:12]).double(), expected, atol=1e-3, rtol=0)
    rows = adapter._views(exact)
    selected = adapter._selected(rows, 100 * rows @ adapter._initial.double().T)
    assert torch.equal(selected, rows.take_along_dim(chosen[:, :, None], dim=1))


@pytest.mark.parametrize("method", ["tpt", "difftpt"])
def test_a_map_that_is_made_once_gives_the_first_gradient(fashion, method):
    plain, mapped = (
        pta.create_adapter(method, fashion.classifier, model=fashion.encoder, first_gradient=how)
        for how in ("backward", "map")
    )
    torch.testing.assert_close(mapped.step(fashion.samples), plain.step(fashion.samples), atol=1e-3, rtol=0)


def test_the_map_is_made_once_as_many_samples_came_as_a_feature_is_long(monkeypatch):
    data, made = toy(count=40), []
    monkeypatch.setattr("pta.methods.tpt.PromptGradients.map_at", lambda *_: made.append("map") or 1 / 0)
    adapter = pta.create_adapter("tpt", data.classifier, model=data.model)
    adapter.step(data.samples[:16])
    assert not made
    with pytest.raises(ZeroDivisionError):
        adapter.step(data.samples[16:17])
    without = pta.create_adapter("tpt", data.classifier, model=data.model, max_gib=0.01, first_gradient="backward")
    without.step(data.samples)
    assert made == ["map"]


# -- gradients --------------------------------------------------------------------------------------------------------


@settings(max_examples=repeated(20))
@given(st.integers(0, 100), st.integers(1, 40))
def test_parts_of_the_classes_give_the_gradient_of_the_whole(seed, kilobytes):
    data = toy()
    rng = torch.Generator().manual_seed(seed)
    contexts = torch.randn(3, *data.tower.context.shape, generator=rng, dtype=torch.float64)
    weights = torch.randn(3, len(NAMES), 16, generator=rng, dtype=torch.float64)
    found = PromptGradients(data.tower, 1024 * kilobytes).pull_back(contexts, weights)
    leaf = contexts.clone().requires_grad_()
    data.tower.read(leaf).backward(weights)
    assert (found - leaf.grad).norm() <= 1e-10 * leaf.grad.norm()
    whole = PromptGradients(data.tower, 1024 * kilobytes).map_at(contexts[0])(weights)[0]
    assert (whole - leaf.grad[0]).norm() <= 1e-10 * leaf.grad[0].norm()


def test_less_memory_means_smaller_parts(fashion):
    tower = fashion.encoder.prompt_tower([f"{word} {name}" for word in "ab" for name in NAMES])
    small, large = (PromptGradients(tower, megabytes * 1e6) for megabytes in (2, 200))
    assert len(small.classes) > len(large.classes) == 1
    assert (small.contexts_at_once, large.contexts_at_once > 1) == (1, True)
    assert sorted(torch.cat(small.classes).tolist()) == list(range(len(NAMES) * 2))


def test_a_tower_in_half_precision_keeps_gradients_that_are_smaller_than_its_numbers(fashion):
    names = fashion.classifier.class_names
    exact, half = (
        copy.deepcopy(fashion.encoder).to(dtype).prompt_tower(names) for dtype in (torch.float64, torch.half)
    )
    weights = 1e-9 * torch.randn(1, len(names), exact.dim, generator=torch.manual_seed(1))
    found, expected = (
        PromptGradients(tower, 1e9).pull_back(exact.context[None].to(dtype), weights.to(dtype)).double()
        for tower, dtype in ((half, torch.float32), (exact, torch.float64))
    )
    assert (found - expected).norm() < 0.01 * expected.norm()


def test_one_step_from_zero_moves_by_the_sign_of_the_gradient():
    """AdamW from zero: −lr·g/(|g| + ε) − lr·wd·x."""
    data = toy(count=1)
    adapter = pta.create_adapter("tpt", data.classifier, model=data.model, lr=0.01, weight_decay=0.5)
    x = data.tower.context
    z = data.scale * data.samples.views.double() @ adapter._initial.T
    by_features = adapter._gradient_by_features(adapter._selected(data.samples.views, z), adapter._initial[None])
    g = adapter._prompts.pull_back(x[None], by_features)[0]
    moved = x - 0.01 * g / (g.abs() + 1e-8) - 0.01 * 0.5 * x
    expected = data.scale * data.tower.read(moved[None])[0] @ data.samples.views[0, 0]
    torch.testing.assert_close(adapter.step(data.samples)[0], expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize("ctpt", [0.0, 5.0])
def test_the_gradient_by_the_context_is_that_of_the_loss(ctpt):
    data = toy(count=1)
    adapter = pta.create_adapter("tpt", data.classifier, model=data.model, ctpt=ctpt, keep=0.3)
    selected = data.samples.views[:, :6]

    def loss(context):
        T = data.tower.read(context[None])[0]
        return mean_entropy(data.scale * selected[0] @ T.T) - ctpt * (T - T.mean(dim=0)).norm(dim=1).mean()

    found = adapter._prompts.pull_back(
        data.tower.context[None], adapter._gradient_by_features(selected, adapter._initial[None])
    )[0]
    for place in [(0, 0), (1, 7), (3, 15)]:
        step = torch.zeros_like(data.tower.context)
        step[place] = 1e-6
        slope = (loss(data.tower.context + step) - loss(data.tower.context - step)) / 2e-6
        torch.testing.assert_close(found[place], slope, rtol=1e-5, atol=1e-8)


def test_histpt_follows_the_cross_entropy_with_its_pseudo_label():
    data = toy(count=1)
    adapter = pta.create_adapter("histpt", data.classifier, model=data.model, lr=0.01, weight_decay=0.0)
    context = data.tower.context.clone().requires_grad_()
    T = data.tower.read(context[None])[0]
    order = entropies(data.scale * data.samples.views[0] @ T.detach().T).argsort()[:2]
    label = (data.samples.views[0, :1] @ T.T).argmax(dim=1)
    cross_entropy(data.scale * data.samples.views[0, order] @ T.T, label.expand(2)).backward()
    adapter.step(data.samples)
    moved = context.grad / (context.grad.abs() + 1e-8)
    torch.testing.assert_close(adapter.context, data.tower.context - 0.01 * moved, atol=1e-8, rtol=0)


# -- each sample alone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["tpt", "difftpt", "difftpt-augmented"])
@settings(max_examples=5)
@given(st.data())
def test_a_sample_has_the_same_logits_in_any_order_and_batch(method, data):
    stream = toy(count=24, dtype=torch.float32)

    def adapter():
        return pta.create_adapter(method, stream.classifier, model=stream.model)

    whole = adapter().step(stream.samples)
    order = torch.tensor(data.draw(st.permutations(range(24))))
    other, shuffled = adapter(), stream.samples[order]
    parts = torch.cat([other.step(shuffled[part]) for part in data.draw(cuts(24))])
    torch.testing.assert_close(parts, whole[order], atol=2e-3, rtol=0)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_tuned_is_refused_in_one_line():
    data = toy()
    with pytest.raises(InvalidParameter, match="tpt needs the prompt tower of a model"):
        pta.create_adapter("tpt", data.classifier)
    with pytest.raises(InvalidParameter, match="16 dimensions"):
        pta.create_adapter("tpt", pta.ZeroShotClassifier(torch.eye(8), list("abcdefgh")), model=data.model)
    with pytest.raises(InvalidParameter, match="uncertain=16 entries cannot be among slots=4"):
        pta.create_adapter("histpt", data.classifier, model=data.model, slots=4)


@pytest.mark.parametrize("method", ["tpt", "histpt"])
def test_a_sample_without_a_finite_gradient_gets_its_zero_shot_answer_and_is_counted(method, monkeypatch):
    data = toy(count=3)
    adapter, twin = (pta.create_adapter(method, data.classifier, model=data.model) for _ in range(2))
    honest = PromptGradients.pull_back

    def spoiled(self, contexts, weights):
        return honest(self, contexts, weights) * torch.nan

    monkeypatch.setattr(PromptGradients, "pull_back", spoiled)
    logits = adapter.step(data.samples)
    torch.testing.assert_close(logits, data.classifier.logits(data.samples.features))
    assert int(adapter.without_gradient) == 3
    assert "3 sample" in adapter.remarks()[0]
    monkeypatch.undo()
    assert torch.equal(adapter.step(data.samples), twin.step(data.samples))
    for name in set(twin.state()) - {"seen", "without_gradient"}:
        assert torch.equal(adapter.state()[name], twin.state()[name])  # nothing was learned before
