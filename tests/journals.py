"""Journals for tests: requests that are known by a number, and what a journal holds of them."""

import shutil
from hashlib import blake2b

import numpy as np

from pta.serve.journal.journal import Journal
from pta.serve.journal.rows import ANSWER, NewRequest

IDENTITY = {"model": "embedded", "classes": ["bag", "shirt"], "format": 1}
FILE = "journal.sqlite"


def id_hash(number):
    return blake2b(f"id {number}".encode(), digest_size=16).digest()


def request(stream, number, source=None, samples=1, d=8):
    """The same request whenever it is made: a client that retries sends what it has sent before."""
    random_numbers = np.random.default_rng([number, samples, d])
    return NewRequest(
        stream=stream,
        id_hash=id_hash(number),
        digest=blake2b(f"body {number}".encode(), digest_size=16).digest(),
        source=source,
        features=random_numbers.standard_normal((samples, d)).astype(np.float16),
        touches=[random_numbers.bytes(12 * random_numbers.integers(1, 5)) for _ in range(samples)],
    )


def answers(*labels):
    rows = np.zeros(len(labels), ANSWER)
    rows["label"] = labels
    rows["entropy"] = 0.25
    return rows


def open_journal(folder, **given):
    return Journal.open(folder, IDENTITY, **given)


def contents(journal, stream):
    """Everything that a stream has, in a form that can be compared."""
    return [
        (rows.group, rows.time, rows.sequences.tolist(), rows.sources, rows.features.tobytes(), rows.touches)
        for rows in journal.groups(stream)
    ]


def image_of(folder, target):
    """What a power failure would leave of a journal in use: its files, without the claim on it."""
    target.mkdir()
    for path in folder.glob(f"{FILE}*"):
        if not path.name.endswith("-shm"):
            shutil.copy(path, target)
    return target
