"""What tests of several processes stand on: a worker that dies ends the test, and says why."""

import subprocess
import sys

import pytest
from processes import wait_until


def test_a_worker_that_dies_is_named_and_not_waited_for():
    worker = subprocess.Popen([sys.executable, "-c", "raise SystemExit('no memory')"], stderr=subprocess.PIPE)
    with pytest.raises(pytest.fail.Exception, match=r"no memory.* ended with 1 too early: b'no memory\\n'"):
        wait_until(lambda: False, worker)


def test_what_a_worker_did_before_its_end_counts(tmp_path):
    done = tmp_path / "done"
    worker = subprocess.Popen([sys.executable, "-c", f"open({str(done)!r}, 'w').close()"])
    wait_until(done.exists, worker)
    assert worker.wait() == 0
