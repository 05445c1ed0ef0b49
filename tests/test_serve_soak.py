"""A service that runs for long does not grow: PTA_SOAK=200000 sends so many samples (make test-soak)."""

import os
import resource
from pathlib import Path

import pytest
from serving import features, open_service, request

SAMPLES = int(os.environ.get("PTA_SOAK", "0"))
BATCH = 50


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not SAMPLES, reason="takes a minute; PTA_SOAK says how many samples to send")
def test_memory_is_flat_within_two_per_cent(tmp_path):
    sizes = []
    with open_service(tmp_path, queue=4096) as service:
        for start in range(0, SAMPLES, 4000):
            batches = range(start, start + 4000, BATCH)
            waiting = [service.submit(request(features(batch, BATCH), source=f"door {batch % 7}")) for batch in batches]
            assert all(reply.result().learned for reply in waiting)
            sizes.append(resident_bytes())
        assert service.summary("default")["position"] == 4000 * len(sizes)
    settled = sizes[len(sizes) // 4]  # caches and the journal's log are full by then
    print(
        f"{4000 * len(sizes):,} samples; {settled / 2**20:.1f} MiB after a quarter, {sizes[-1] / 2**20:.1f} at the end"
    )
    assert sizes[-1] <= 1.02 * settled
