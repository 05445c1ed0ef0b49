"""A prompt tower gives the features of the prompts, for any context in place of their first words."""

import copy
from unittest.mock import patch

import pytest
import torch
from effort import repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_checkpoints import random_state

from pta.errors import InvalidParameter
from pta.models.clip import prompts as causal_prompts
from pta.models.clip.encoder import ClipEncoder
from pta.models.clip.prompts import tokenize_prompts
from pta.models.encoder import Encoder

START = "a photo of a"
NAMES = ["cat", "sea_lion", "great grey owl, seen from afar", "dog", "fox"]


class WholePrompts(ClipEncoder):
    """CLIP in OpenAI's layout, reading every class's whole prompt as encoders without a causal tower do."""

    _prompt_reader = Encoder._prompt_reader


CAUSAL = ["clip", "clip of transformers"]


@pytest.fixture(scope="module")
def encoders(encoders):
    return {**encoders, "whole prompts": WholePrompts(random_state("ViT"), quick_gelu=True).ready()}


@pytest.fixture(params=[*CAUSAL, "whole prompts", "siglip", "embedded"])
def encoder(request, encoders):
    return encoders[request.param]


def other_contexts(tower, count):
    noise = torch.randn(count, *tower.context.shape, generator=torch.Generator().manual_seed(5))
    return (tower.context + tower.context.std() * noise).requires_grad_()


def prompt_by_prompt(encoder, names, contexts):
    """Each class's embeddings with each context, padded to CLIP's 77 tokens, as released programs read them."""
    prompts = [f"{START} {name.replace('_', ' ')}." for name in names]
    ids, mask = encoder.tokenize([*prompts, "x " * 75])
    embeddings = encoder.embed_ids(ids)
    rows = []
    for context in contexts:
        replaced = embeddings.clone()
        replaced[:, 1 : 1 + len(context)] = context
        rows.append(encoder.text_from_embeddings(replaced, mask)[:-1])
    return torch.stack(rows)


def gradient(features, contexts):
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(6))
    (found,) = torch.autograd.grad((features * weights).sum(), contexts)
    return found


def test_the_words_themselves_give_the_features_of_the_prompts(encoder):
    tower = encoder.prompt_tower(NAMES)
    assert (tower.classes, tower.dim) == (len(NAMES), encoder.dim)
    assert not tower.context.requires_grad
    expected = encoder.encode_texts([f"{START} {name.replace('_', ' ')}." for name in NAMES])
    torch.testing.assert_close(tower.read(tower.context[None])[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", [*CAUSAL, "whole prompts"])
def test_features_and_gradients_equal_those_of_whole_prompts(encoders, kind):
    encoder = encoders[kind]
    tower = encoder.prompt_tower(NAMES)
    contexts = other_contexts(tower, 3)
    features, expected = tower.read(contexts), prompt_by_prompt(encoder, NAMES, contexts)
    torch.testing.assert_close(features, expected, atol=1e-6, rtol=0)
    found, expected = gradient(features, contexts), gradient(expected, contexts)
    assert (found - expected).norm() <= 1e-5 * expected.norm()


@settings(max_examples=repeated(25), deadline=None)
@given(
    names=st.lists(st.text("ab ,", min_size=1, max_size=40).map("c{}".format), min_size=1, max_size=8),
    tokens_at_once=st.sampled_from([1, 20, 2**14]),
    kind=st.sampled_from([*CAUSAL, "embedded"]),
)
def test_a_class_has_the_same_features_whatever_stands_beside_it(encoders, names, tokens_at_once, kind):
    encoder = encoders[kind]
    with patch.object(causal_prompts, "_MOST_TOKENS", tokens_at_once):
        tower = encoder.prompt_tower(names)
        contexts = other_contexts(tower, 2).detach()
        together = tower.read(contexts)
    alone = torch.cat([encoder.prompt_tower([name]).read(contexts) for name in names], dim=1)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_several_contexts_equal_one_by_one(encoder):
    tower = encoder.prompt_tower(NAMES)
    contexts = other_contexts(tower, 4).detach()
    one_by_one = torch.cat([tower.read(context[None]) for context in contexts])
    torch.testing.assert_close(tower.read(contexts), one_by_one, atol=1e-5, rtol=0)
    assert tower.read(contexts[:0]).shape == (0, len(NAMES), encoder.dim)


def test_a_context_of_its_own_for_each_class_is_read_as_for_all(encoder):
    tower = encoder.prompt_tower(NAMES).part(torch.tensor([3, 1]))
    contexts = other_contexts(tower, 2).detach()
    own = tower.read(contexts).diagonal().T
    torch.testing.assert_close(tower.read_each(contexts), own, atol=1e-5, rtol=0)


def test_parts_of_the_classes_give_the_gradient_of_the_whole(encoder):
    tower = encoder.prompt_tower(NAMES)
    contexts = other_contexts(tower, 2)
    features = tower.read(contexts)
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(7))
    features.backward(weights)
    whole, contexts.grad = contexts.grad, None
    for first, last in ((0, 2), (2, 5)):
        encoder.prompt_tower(NAMES[first:last]).read(contexts).backward(weights[:, first:last])
    assert (contexts.grad - whole).norm() <= 1e-4 * whole.norm()
    assert all(weight.grad is None for weight in encoder.parameters())


def test_a_tower_in_half_precision_gives_the_precision_of_the_contexts(encoder):
    contexts = other_contexts(encoder.prompt_tower(NAMES), 2).detach()
    expected = encoder.prompt_tower(NAMES).read(contexts)
    tower = copy.deepcopy(encoder).ready(dtype=torch.bfloat16).prompt_tower(NAMES)
    features = tower.read(contexts)
    assert features.dtype == torch.float32
    torch.testing.assert_close(features.norm(dim=2), torch.ones(2, len(NAMES)))
    assert (features * expected).sum(dim=2).min() > 0.99
    assert tower.read(contexts.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("kind", "names", "start", "message"),
    [
        ("clip", ["cat"], " ", "start '' has no tokens"),
        ("siglip", ["cat"], "?!", r"start '\?!' has no tokens"),
        ("clip", ["cat", "x " * 75], START, r"class 'x x .*a text has 80 tokens"),
        ("embedded", ["cat", "x" * 70], START, r"class 'xxx.*a text has 84 bytes"),
        ("siglip", ["cat", "x " * 75], START, r"class 'x x .*fills all 64 tokens"),
        ("siglip", ["cat", "?!"], START, r"class '\?!' has no tokens after"),
        ("clip of transformers", ["<|endoftext|> cat"], START, r"class '<\|endoftext\|> cat' has no tokens after"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(encoders, kind, names, start, message):
    with pytest.raises(InvalidParameter, match=message):
        encoders[kind].prompt_tower(names, start)


def test_a_prompt_that_does_not_begin_with_the_tokens_of_the_start_is_refused():
    def tokenize(texts):
        """Words by their length, "a bee" as one word."""
        rows = [[len(word) for word in text.replace("a bee", "abee").split()] + [99] for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        return ids, ids > 0

    assert tokenize_prompts(tokenize, ["cat"], START).shared == 4
    with pytest.raises(InvalidParameter, match="class 'bee' does not begin with the tokens of 'a photo of a'"):
        tokenize_prompts(tokenize, ["cat", "bee"], START)
