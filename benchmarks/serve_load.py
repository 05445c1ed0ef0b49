"""Servers in processes of their own, and clients that keep it busy.

Clients are connections: each sends its next request when the last one is answered. A process has many of them and does
little more than copy bytes, so that the service is what is measured.
"""

import json
import multiprocessing
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np

TOKEN = "0123456789abcdef-of-the-benchmark"
PROCESSES = 2  # of clients


@dataclass(frozen=True)
class Load:
    """What clients saw: answers per second, and the seconds that each took; and what it cost the server."""

    per_second: float
    seconds: np.ndarray
    cpu_ms: float = 0.0  # of the server per request
    group: float = 0.0  # samples that were learned together, on average

    def ms(self, share: float) -> float:
        """A percentile of the latencies."""
        return 1000 * float(np.percentile(self.seconds, share))


class ServerProcess:
    """A server in a process of its own, from ready to the end of the block; `command` is completed with its port."""

    def __init__(self, folder: Path, *command: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._log = (folder / "log").open("a")
        call = [sys.executable, *command, "--port", str(self.port)]
        began = time.perf_counter()
        self._process = subprocess.Popen(call, stdout=self._log, stderr=self._log)
        while not self._is_ready():
            if self._process.poll() is not None:
                self._log.close()
                raise SystemExit(f"{call} ended: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        self.seconds_to_ready = time.perf_counter() - began

    def _is_ready(self) -> bool:
        try:
            self.ask("GET", "/v2/health/ready")
        except HTTPError as refusal:
            refusal.close()
            return False
        except (URLError, ConnectionError):
            return False
        return True

    def get(self, method: str, path: str, body: Any = None) -> bytes:
        """Ask for a route with JSON, and get what it answers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        with urlopen(Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)) as answer:
            return answer.read()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for a route with JSON, and get its JSON."""
        text = self.get(method, path, body)
        return json.loads(text) if text else None

    def metric(self, name: str) -> float | None:
        """A number of /metrics without labels; None if there is none of this name."""
        try:
            lines = self.get("GET", "/metrics").decode().splitlines()
        except HTTPError as refusal:  # a naive service has none
            refusal.close()
            return None
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), None)

    def cpu_seconds(self) -> float:
        """Processor time that the service has used."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, field: str = "VmRSS") -> int:
        """Bytes of resident memory now; with `VmHWM` at the peak."""
        return 1024 * int(self._proc("status").partition(f"{field}:")[2].split()[0])

    def written(self) -> int:
        """Bytes that it has written to the disk."""
        return int(self._proc("io").partition("\nwrite_bytes:")[2].split()[0])

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    def load(self, requests: Sequence[bytes], clients: int, seconds: float) -> Load:
        """What so many clients see, who send these requests in turn."""
        processes = min(PROCESSES, clients)
        shares = [clients // processes + (one < clients % processes) for one in range(processes)]
        before = self.cpu_seconds(), *self._groups()
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            jobs = [(self.port, requests[one::processes], share, seconds) for one, share in enumerate(shares)]
            latencies = np.concatenate(pool.starmap(drive, jobs, chunksize=1))
        after = self.cpu_seconds(), *self._groups()
        cpu, samples, groups = (new - old for new, old in zip(after, before, strict=True))
        return Load(len(latencies) / seconds, latencies, 1000 * cpu / len(latencies), samples / groups if groups else 0)

    def _groups(self) -> tuple[float, float]:
        """How many samples were learned in groups, and in how many, if the service counts them."""
        return self.metric("pta_group_samples_sum") or 0, self.metric("pta_group_samples_count") or 0

    def kill(self) -> None:
        """End it as a power failure does: without a snapshot."""
        self._process.kill()
        self._process.wait()

    def close(self) -> float:
        """End it by SIGTERM; the seconds that this takes."""
        began = time.perf_counter()
        self._process.terminate()
        self._process.wait()
        self._log.close()
        return time.perf_counter() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Server(ServerProcess):
    """`pta serve` with its data in a folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data, token = folder / "data", folder / "token"
        token.write_text(TOKEN)
        arguments += ("--token-file", str(token), *(("--log", "none") if has_option("log", "none") else ()))
        if "--no-journal" not in arguments:
            arguments += ("--data", str(self.data))
        super().__init__(folder, "-m", "pta", "serve", *arguments)


class NaiveServer(ServerProcess):
    """`naive_service.py` with its database, if it is durable, in a folder."""

    def __init__(self, folder: Path, features: Path, *, durable: bool) -> None:
        database = ("--database", str(folder / "samples.sqlite")) if durable else ()
        super().__init__(folder, str(Path(__file__).with_name("naive_service.py")), str(features), *database)


def has_option(name: str, value: str = "") -> bool:
    """Whether `pta serve` has an option, and a value among its choices."""
    return any(f"--{name} " in line and value in line for line in _help().splitlines())


@cache
def _help() -> str:
    call = [sys.executable, "-m", "pta", "serve", "--help"]
    environment = {**os.environ, "COLUMNS": "400", "NO_COLOR": "1"}
    return subprocess.run(call, env=environment, capture_output=True, text=True, check=True).stdout


def infer(
    datatype: str, name: str, shape: Sequence[int], raw: bytes, *, id: str | None = None, **parameters: str
) -> bytes:
    """An infer request with a binary input, as it goes over the wire."""
    tensor = {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    asked = {"inputs": [tensor], "parameters": {"binary_data_output": True, **parameters}}
    text = json.dumps(asked if id is None else asked | {"id": id}).encode()
    head = (
        "POST /v2/models/pta/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n"
        f"Authorization: Bearer {TOKEN}\r\nInference-Header-Content-Length: {len(text)}\r\n"
        f"Content-Length: {len(text) + len(raw)}\r\n\r\n"
    )
    return head.encode() + text + raw


def send_all(port: int, requests: Iterable[bytes], connections: int, pause: float = 0.0) -> np.ndarray:
    """Send each request once, over several connections; the seconds that each answer took, in the order they came.

    With a pause, each request begins at least so many seconds after the one before it.
    """
    latencies, sent, waiting = [], {}, iter(requests)
    due = time.perf_counter()
    with selectors.DefaultSelector() as selector:

        def opened() -> socket.socket:
            connection = _connect(port)
            selector.register(connection, selectors.EVENT_READ, bytearray())
            return connection

        free = [opened() for _ in range(connections)]
        request = next(waiting, None)
        while request is not None or len(free) < connections:
            while request is not None and free and time.perf_counter() >= due:
                due += pause
                connection = free.pop()
                sent[connection] = time.perf_counter()
                connection.sendall(request)
                request = next(waiting, None)
            may_send = request is not None and free
            for key, _ in selector.select(max(due - time.perf_counter(), 0) if may_send else None):
                if key.fileobj in free:  # the service ends connections that were idle for long
                    selector.unregister(key.fileobj)
                    free[free.index(key.fileobj)] = opened()
                    key.fileobj.close()
                    continue
                _read(key)
                if _is_whole(key.data):
                    key.data.clear()
                    latencies.append(time.perf_counter() - sent[key.fileobj])
                    free.append(key.fileobj)
        for connection in free:
            connection.close()
    return np.array(latencies)


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _read(key: selectors.SelectorKey) -> None:
    if not (part := key.fileobj.recv(1 << 16)):
        raise RuntimeError(f"the service closed a connection after {bytes(key.data[:300])!r}")
    key.data.extend(part)


def drive(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> np.ndarray:
    """The seconds that each answer took which came in time."""
    latencies, sent, turn = [], {}, 0
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            selector.register(_connect(port), selectors.EVENT_READ, bytearray())
        end = time.perf_counter() + seconds
        for key in list(selector.get_map().values()):
            turn = _send(key.fileobj, requests, turn, sent)
        while (now := time.perf_counter()) < end:
            for key, _ in selector.select(end - now):
                _read(key)
                if _is_whole(key.data):
                    key.data.clear()
                    latencies.append(time.perf_counter() - sent[key.fileobj])
                    turn = _send(key.fileobj, requests, turn, sent)
        for key in list(selector.get_map().values()):
            key.fileobj.close()
    return np.array(latencies)


def _send(connection: socket.socket, requests: Sequence[bytes], turn: int, sent: dict[socket.socket, float]) -> int:
    sent[connection] = time.perf_counter()
    connection.sendall(requests[turn % len(requests)])
    return turn + 1


def _is_whole(answer: bytearray) -> bool:
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the service answered {bytes(answer[:300])!r}")
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
    return len(body) >= int(length)
