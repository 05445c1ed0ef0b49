"""Events tell what changed: little of a large summary, the same to all who watch, and nothing that does not fit."""

import asyncio
import json

import numpy as np
import pytest
from http_serving import patched
from hypothesis import given
from hypothesis import strategies as st
from serving import request

from pta.core.classifier import ZeroShotClassifier
from pta.serve.http import events
from pta.serve.http.events import Events
from pta.serve.http.patches import NotPatchable, difference
from pta.serve.streams.served_model import ServedModel
from pta.serve.streams.service import Service

CLASSES, DIM = 1000, 64
NUMBERS = st.one_of(st.none(), st.integers(0, 3))
ROWS = st.lists(st.one_of(NUMBERS, st.fixed_dictionaries({"name": NUMBERS, "count": NUMBERS})), max_size=6)
PARTS = st.one_of(NUMBERS, ROWS, st.dictionaries(st.sampled_from("ab"), st.one_of(NUMBERS, ROWS)))
SUMMARIES = st.fixed_dictionaries({"one": PARTS, "two": PARTS})


@given(SUMMARIES, SUMMARIES)
def test_a_patch_leads_from_one_summary_to_the_next(old, new):
    try:
        patch = difference(old, new)
    except NotPatchable:
        assert any(isinstance(new[name], dict) and new[name] != old[name] for name in new)
    else:
        assert patched(old, json.loads(json.dumps(patch))) == new


@given(st.lists(st.integers(), unique=True, max_size=9), st.integers(0, 9), st.integers(0, 3))
def test_of_rows_that_move_up_only_new_ones_are_sent(rows, drop, more):
    new = [*rows[drop:], *(f"new {number}" for number in range(more))]
    patch = difference(rows, new)
    if rows[drop:]:
        assert patch == {"drop": drop, "set": {}, "add": new[len(rows) - drop :]}


@pytest.fixture(scope="module", params=["pta", "wpta"])
def service(request, tmp_path_factory):
    """A service of many classes that has learned for a while."""
    random = np.random.default_rng(0)
    anchors = random.standard_normal((CLASSES, DIM)).astype(np.float32)
    names = [f"a class with the number {number}" for number in range(CLASSES)]
    classifier = ZeroShotClassifier(anchors, names, 20.0)
    with Service.open(ServedModel(classifier, request.param), tmp_path_factory.mktemp("state")) as service:
        service.random = random
        learn(service, 640)
        yield service


def learn(service, count=1):
    """Have random samples learned."""
    samples = service.random.standard_normal((count, DIM)).astype(np.float32)
    for start in range(0, count, 64):
        service.submit(request(samples[start : start + 64], source="left")).result()


def data(event):
    return json.loads(event.partition(b"data: ")[2])


def told(service):
    """The summary as `GET` tells it; the rate depends on the clock."""
    return {**json.loads(json.dumps(service.summary("default"))), "rate": 0}


def watching(service):
    return Events(service, most=9).watch("default")


def test_an_event_after_one_sample_is_small_and_all_together_are_the_summary(service):
    async def run():
        watcher = watching(service)
        whole = await anext(watcher)
        summary = data(whole)
        assert not whole.startswith(b"event: patch")
        for _ in range(3):
            position = summary["position"]
            await asyncio.to_thread(learn, service)
            while summary["position"] == position:
                event = await anext(watcher)
                assert event.startswith(b"event: patch")
                assert len(event) < 4096 < len(whole) / 10
                summary = patched(summary, data(event))
            assert {**summary, "rate": 0} == told(service)
        await watcher.aclose()

    asyncio.run(run())


def test_a_stream_is_summarised_once_for_all_who_watch(service, monkeypatch):
    made = []
    summary = service.summary
    monkeypatch.setattr(events, "_SECONDS_UNCHANGED", 1e9)  # no event but those of samples
    monkeypatch.setattr(service, "summary", lambda name: made.append(name) or summary(name))

    async def run():
        all_watching = Events(service, most=9)
        watchers = [all_watching.watch("default") for _ in range(5)]
        summaries = [data(await anext(watcher)) for watcher in watchers]
        await asyncio.to_thread(learn, service)
        later = await asyncio.gather(*map(anext, watchers))
        assert len({*later}) == 1
        assert len(made) == 2
        assert all({**patched(one, data(later[0])), "rate": 0} == told(service) for one in summaries)
        for watcher in watchers:
            await watcher.aclose()
        assert not all_watching._feeds

    asyncio.run(run())


def test_who_reads_too_slowly_gets_a_whole_summary(service, monkeypatch):
    monkeypatch.setattr(events, "_SECONDS_BETWEEN", 0.0)

    async def run():
        all_watching = Events(service, most=9)
        slow, quick = (all_watching.watch("default") for _ in range(2))
        await anext(slow)
        await anext(quick)
        for _ in range(2 * events._MOST_PATCHES):
            await asyncio.to_thread(learn, service)
            await anext(quick)
        event = await anext(slow)
        assert not event.startswith(b"event: patch")
        assert {**data(event), "rate": 0} == told(service)

    asyncio.run(run())
