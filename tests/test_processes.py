"""What tests of several processes stand on: a worker that dies ends the test, and says why."""

import subprocess
import sys

import pytest
from processes import wait_until


def test_a_worker_that_dies_is_named_and_not_waited_for():
    code, complaint = "raise SystemExit('no memory')", r"no memory.* ended with 1 too early: b'no memory\\n'"
    with (
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as worker,
        pytest.raises(pytest.fail.Exception, match=complaint),
    ):
        wait_until(lambda: False, worker)


def test_what_a_worker_did_before_its_end_counts(tmp_path):
    done = tmp_path / "done"
    worker = subprocess.Popen([sys.executable, "-c", f"open({str(done)!r}, 'w').close()"])
    wait_until(done.exists, worker)
    assert worker.wait() == 0
