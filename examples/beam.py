"""One stream on Apache Beam by the functions of pta.cluster: python examples/beam.py FEATURES OUT [BLOCK] [ROUNDS]."""

import sys

import apache_beam as beam

import pta
from pta.cluster import boundary, cut, mismatches, repair_block, replay_block, scan, start_of, summarise_block
from pta.data.features import load_features


def before_each(summaries, adapter):  # in any order
    parts = [part for _, part in sorted(summaries, key=lambda one: one[0])]
    learned = scan(adapter, start_of(adapter), parts)
    return [(k, (learned[k], (learned[k - 1], parts[k - 1]) if k else None)) for k in range(len(parts))]


def replayed(item, adapter):
    k, ((block,), (summary,), (before,)) = item
    start = boundary(adapter, *before)
    return k, (block, summary, start, start, replay_block(adapter, block, summary, start)[1])


def repaired(item, adapter):  # beyond the last block there is none, before the first there is no end
    k, (own, ends) = item
    for block, summary, start, path, end in own:
        for before in (one for one in ends if len(mismatches(one, start))):
            start, path, end, _ = vars(repair_block(adapter, block, summary, path, end, before)).values()
        yield k, (block, summary, start, path, end)


data = load_features(sys.argv[1])
size, rounds = (*map(int, sys.argv[3:]), 65_536, 4)[:2]  # one round less than there are blocks is always enough
adapter = pta.create_adapter("pta", data.classifier)
with beam.Pipeline(argv=[]) as pipeline:
    blocks = pipeline | beam.Create(list(enumerate(cut(range(len(data.samples)), data.samples, size))))
    summaries = blocks | beam.Map(lambda item, adapter: (item[0], summarise_block(adapter, item[1])), adapter)
    learned = summaries | beam.combiners.ToList() | beam.FlatMap(before_each, adapter)
    states = (blocks, summaries, learned) | beam.CoGroupByKey() | beam.Map(replayed, adapter)
    for r in range(rounds):
        ends = states | f"end {r}" >> beam.MapTuple(lambda k, state: (k + 1, state[-1]))
        states = (states, ends) | f"meet {r}" >> beam.CoGroupByKey() | f"{r}" >> beam.FlatMap(repaired, adapter)
    answers = states | beam.Map(lambda item, adapter: replay_block(adapter, *item[1][:3])[0], adapter)
    lines = answers | beam.FlatMap(lambda a: [f"{n},{label}" for n, label in zip(a.numbers, a.labels, strict=True)])
    lines | beam.io.WriteToText(sys.argv[2], header="number,label")
