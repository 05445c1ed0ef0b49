"""`pta serve` in a process of its own, and clients that keep it busy.

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
from collections.abc import Sequence
from dataclasses import dataclass
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
    """What clients saw: answers per second, and the seconds that each took."""

    per_second: float
    seconds: np.ndarray

    def ms(self, share: float) -> float:
        """A percentile of the latencies."""
        return 1000 * float(np.percentile(self.seconds, share))


class Server:
    """`pta serve` with its data in a folder, from ready to the end of the block."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.data, token = folder / "data", folder / "token"
        token.write_text(TOKEN)
        where = ("--port", str(self.port), "--token-file", str(token))
        if "--no-journal" not in arguments:
            where += ("--data", str(self.data))
        self._log = (folder / "log").open("a")
        call = [sys.executable, "-m", "pta", "serve", *arguments, *where]
        self._process = subprocess.Popen(call, stdout=self._log, stderr=self._log)
        while not self._is_ready():
            if self._process.poll() is not None:
                self._log.close()
                raise SystemExit(f"pta serve ended: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            self.ask("GET", "/v2/health/ready")
        except HTTPError as refusal:
            refusal.close()
            return False
        except (URLError, ConnectionError):
            return False
        return True

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for a route with JSON, and get its JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        with urlopen(Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def cpu_seconds(self) -> float:
        """Processor time that the service has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def load(self, requests: Sequence[bytes], clients: int, seconds: float) -> Load:
        """What so many clients see, who send these requests in turn."""
        processes = min(PROCESSES, clients)
        shares = [clients // processes + (one < clients % processes) for one in range(processes)]
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            jobs = [(self.port, requests[one::processes], share, seconds) for one, share in enumerate(shares)]
            latencies = np.concatenate(pool.starmap(drive, jobs, chunksize=1))
        return Load(len(latencies) / seconds, latencies)

    def kill(self) -> None:
        """End it as a power failure does: without a snapshot."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()


def infer(datatype: str, name: str, shape: Sequence[int], raw: bytes) -> bytes:
    """An infer request with a binary input, as it goes over the wire."""
    tensor = {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    head = (
        "POST /v2/models/pta/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n"
        f"Authorization: Bearer {TOKEN}\r\nInference-Header-Content-Length: {len(text)}\r\n"
        f"Content-Length: {len(text) + len(raw)}\r\n\r\n"
    )
    return head.encode() + text + raw


def drive(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> np.ndarray:
    """The seconds that each answer took which came in time."""
    latencies, sent, turn = [], {}, 0
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ, bytearray())
        end = time.perf_counter() + seconds
        for key in list(selector.get_map().values()):
            turn = _send(key.fileobj, requests, turn, sent)
        while (now := time.perf_counter()) < end:
            for key, _ in selector.select(end - now):
                key.data.extend(key.fileobj.recv(1 << 16))
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
