"""`pta serve` from its start to its end, and the commands that ask and change what it serves."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from http_serving import features, journal_rows, process
from processes import PATIENCE

from pta.data.features import load_features
from pta.errors import PtaError
from pta.serve.http.security import own_token, read_token


@contextmanager
def started(pets, folder):
    """A service that has learned from two sources."""
    options = ("--features-only", pets, "--log", "json", "--open-health", "--root-path", "/pta", "--stream-metrics")
    with process(folder, *options) as server:
        rows = load_features(pets).samples.features.numpy()
        for source in ("left", "right"):
            answer = server.infer(features(rows[:3]), parameters={"source": source})
            assert answer.status == 200
        yield server


@pytest.fixture(scope="module")
def server(pets, tmp_path_factory):
    with started(pets, tmp_path_factory.mktemp("serve") / "state") as server:
        yield server


@pytest.fixture
def stream(server, pta):
    """`pta stream …` at this service."""
    where = ("--server", server.url, "--token-file", server.folder / "token")
    return lambda *arguments: pta("stream", *arguments, *where)


def test_streams_are_listed_and_shown(stream):
    assert "default" in stream("list").stdout
    listed = json.loads(stream("list", "--json", "-").stdout)
    assert [(one["name"], one["position"]) for one in listed] == [("default", 6)]
    shown = stream("show", "default").stdout
    assert "samples in force  6" in shown
    assert "left: 3" in shown
    assert json.loads(stream("show", "default", "--json", "-").stdout)["position"] == 6


def test_a_change_tells_how_many_samples_it_concerns_and_needs_a_yes(stream):
    for change, samples in (
        (("rewind", "default", "--sequence", 2), 4),
        (("unlearn", "default", "--source", "left"), 3),
        (("reset", "default"), 6),
        (("delete", "default"), 6),
    ):
        refused = stream(*change)
        assert refused.returncode == 2
        assert f"{samples} samples concerned; --yes does it without asking" in refused.stderr
    done = stream("unlearn", "default", "--source", "left", "--yes")
    assert (done.returncode, done.stderr) == (0, "pta: unlearn default: 3 samples concerned\n")
    assert json.loads(stream("undo", "default", "--yes", "--json", "-").stdout)["samples"] == 3
    assert json.loads(stream("list", "--json", "-").stdout)[0]["position"] == 6


def test_a_state_travels_through_a_file(stream, tmp_path):
    file = tmp_path / "state.safetensors"
    assert stream("export", "default", "--out", file).returncode == 0
    assert stream("create", "copy").returncode == 0
    assert stream("import", "copy", file, "--yes").returncode == 0
    assert stream("freeze", "copy").returncode == 0
    copy = json.loads(stream("show", "copy", "--json", "-").stdout)
    assert (copy["position"], copy["frozen"]) == (6, True)
    assert stream("thaw", "copy").returncode == 0
    assert stream("delete", "copy", "--yes").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "nobody"), "no stream is called nobody"),
        (("rewind", "default"), "either --sequence or --to"),
        (("rewind", "default", "--to", "yesterday"), "2026-05-01T12:00:00"),
        (("rewind", "default", "--sequence", 99, "--yes"), "99"),
        (("reset", "default", "--class", "unicorn", "--yes"), "unicorn"),
    ],
)
def test_a_mistake_is_one_line(stream, arguments, said):
    refused = stream(*arguments)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_journal_is_checked_and_copied_while_it_is_written(server, pta, tmp_path):
    assert "is whole" in pta("journal", "check", "--data", server.folder).stdout
    assert pta("journal", "backup", tmp_path / "copy", "--data", server.folder).returncode == 0
    assert journal_rows(tmp_path / "copy") == journal_rows(server.folder)
    assert json.loads(pta("journal", "check", "--data", tmp_path / "copy", "--json", "-").stdout)["problems"] == []
    assert pta("journal", "check", "--data", tmp_path).returncode == 2


def test_health_is_open_where_it_was_asked_for(server):
    for path, status in (("/v2/health/live", 200), ("/v2/health/ready", 200), ("/v2", 401)):
        assert server.ask("GET", path, token="none").status == status


def test_metrics_name_the_streams_where_it_was_asked_for(server):
    assert 'pta_stream_position{stream="default"}' in server.ask("GET", "/metrics").body.decode()


def test_a_proxy_s_prefix_is_in_the_cookie(server):
    answer = server.ask("POST", "/login", {"token": server.token})
    assert "Path=/pta" in answer.headers["set-cookie"]


def test_a_file_or_pipe_is_told_where_the_token_is_and_not_the_token(server):
    said = server.said.read_text()
    assert said == f"{server.url}/ (sign in with the token in {server.folder / 'token'})\n"
    assert server.token not in said + server.log.read_text()


@pytest.mark.skipif(os.name != "posix", reason="a terminal is POSIX")
def test_a_terminal_is_shown_the_login_link(pets, tmp_path):
    ours, theirs = os.openpty()
    call = [sys.executable, "-m", "pta", "serve", "--features-only", str(pets), "--data", "state", "--port", "0"]
    with os.fdopen(ours) as terminal, os.fdopen(theirs, "w") as stdout:
        started = subprocess.Popen(call, cwd=tmp_path, stdout=stdout, stderr=subprocess.DEVNULL)
        try:
            address, token = terminal.readline().strip().split("/#token=")
        finally:
            started.kill()
            started.wait(PATIENCE)
    assert address.startswith("http://127.0.0.1:")
    assert token == (tmp_path / "state" / "token").read_text().strip()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--data is required"),
        (
            ("--no-journal", "--features-only", "PETS"),
            "a new token is shown on a terminal only; --token-file names one",
        ),
        (("--data", "d"), "--classes is required"),
        (("--data", "d", "--features-only", "PETS", "--classes", "a,b"), "leave one of the two out"),
        (("--data", "d", "--features-only", "PETS", "--name", "a/b"), "--name a/b"),
        (("--data", "d", "--features-only", "PETS", "--root-path", "pta/"), "--root-path pta/"),
        (("--data", "d", "--features-only", "PETS", "--max-body", "much"), "much is not a size"),
        (("--data", "d", "--features-only", "PETS", "--drain", "long"), "long is not a duration"),
        (("--data", "d", "--features-only", "PETS", "--method", "tpt"), "cannot be served|needs"),
        (("--data", "d", "--features-only", "PETS", "--token-file", "PETS"), "not UTF-8|at most"),
        (("--data", "d", "--features-only", "PETS", "--host", "no.such.host.invalid"), "cannot listen"),
    ],
)
def test_a_service_that_cannot_start_says_why(pta, pets, arguments, said):
    refused = pta("serve", *(pets if one == "PETS" else one for one in arguments))
    assert refused.returncode == 2
    assert re.search(said, refused.stderr), refused.stderr


def test_a_port_that_is_taken_is_named(pta, pets):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = pta("serve", "--features-only", pets, "--data", "d", "--port", port)
    assert refused.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr


def test_without_the_extra_one_line_says_what_to_install(pets, tmp_path):
    program = "import sys; sys.modules['orjson'] = None; from pta.cli import main; main()"
    command = [sys.executable, "-c", program, "serve", "--features-only", str(pets), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "pta: pta serve needs orjson; run pip install 'pta-vlm[serve]'\n"


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
def test_a_token_that_others_can_read_is_refused(tmp_path):
    made = own_token(tmp_path / "token")
    assert own_token(tmp_path / "token") == made == read_token(tmp_path / "token")
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        own_token(tmp_path / "token")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    with pytest.raises(PtaError, match="is a link"):
        own_token(tmp_path / "nowhere")
    (tmp_path / "short").write_text("abc")
    with pytest.raises(ValueError, match="at least 16"):
        read_token(tmp_path / "short")


def test_sigterm_ends_events_saves_and_exits_with_0(pets, tmp_path):
    with started(pets, tmp_path / "state") as server:
        lines = ("GET /streams/default/events HTTP/1.1", "Host: localhost", f"Authorization: Bearer {server.token}")
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as watcher:
            watcher.sendall("\r\n".join((*lines, "", "")).encode())
            assert watcher.recv(100).startswith(b"HTTP/1.1 200")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(PATIENCE) == 0
            while watcher.recv(2**16):
                pass
    assert list(server.folder.rglob("*.safetensors"))
    log = server.log.read_text()
    assert server.token not in log
    assert "Traceback" not in log
    # All lines after the announcement are requests.
    numbers = [json.loads(line)["request"] for line in log.splitlines() if line.startswith("{")]
    assert sorted(numbers) == [1, 2, 3]
