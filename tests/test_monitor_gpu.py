"""Monitors of a stream on a GPU: counted late, and the same as on the host."""

import numpy as np
import pytest
import torch
from test_monitor import attacked, classifier  # noqa: F401

import pta
from pta.core.labels import UNKNOWN
from pta.core.samples import Samples
from pta.monitor import Monitor, StreamGuard, parse_reactions, takes_order
from pta.monitor.stepping import watched_steps

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("on", [(), ("foreign-input=hold", "one-source=cap")])
@pytest.mark.parametrize("method", ["pta", "wpta"])
def test_alarms_are_those_of_the_host(classifier, method, on):  # noqa: F811
    features, sources = attacked(classifier)
    found = {}
    for device in ("cpu", "cuda"):
        known = classifier.to(device=torch.device(device))
        adapter = pta.create_adapter(method, known)
        monitor = Monitor(known, takes_order=takes_order(adapter))
        guard, alarms, learned = StreamGuard(monitor, parse_reactions(on)), [], []
        for start in range(0, len(features), 256):
            rows = slice(start, start + 256)
            samples = Samples.of(features[rows])
            unknown = np.full(len(samples), UNKNOWN, np.int64)
            for piece in watched_steps(adapter, guard, samples, unknown, sources[rows]):
                alarms += piece.alarms
                learned.append(piece.learned)
        alarms += monitor.flush()
        kinds = [(alarm.kind, alarm.position, alarm.raised) for alarm in alarms]
        found[device] = kinds, np.concatenate(learned).tolist(), monitor.position
    assert found["cuda"] == found["cpu"]
    assert found["cpu"][0]
