"""A service that runs while tests ask it, in this process or in one of its own."""

import json
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import uvicorn
from processes import PATIENCE, wait_until

from pta.data.features import load_features
from pta.serve.http.app import create_app
from pta.serve.http.security import HttpSettings
from pta.serve.http.server import configured, listen
from pta.serve.requests import join_elements
from pta.serve.streams.served_model import ServedModel, ServiceSettings
from pta.serve.streams.service import Service

TOKEN = "correct-horse-battery"
INFER = "/v2/models/pta/infer"


class Asking:
    """What a client can do with a server, request by request."""

    def __init__(self, port, token, folder):
        self.port, self.token, self.folder = port, token, folder
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method, path, body=None, headers=None, token=None):
        """Status, headers and body of an answer; a body that is no bytes is sent as JSON."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        own = {"Authorization": f"Bearer {token or self.token}", "Content-Type": "application/json"}
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request(method, path, content, {**own, **(headers or {})})
            with connection.getresponse() as answer:
                return SimpleNamespace(status=answer.status, headers=answer.headers, body=answer.read())

    def head(self, *headers, method="POST", path=INFER, token=None):
        """The first line and headers of a request as they go over the wire; `token=""` leaves the token out."""
        token = self.token if token is None else token
        own = [f"Authorization: Bearer {token}"] if token else []
        return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *own, *headers, "", "")).encode()

    def connect(self):
        """A connection on which anything can be sent."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def infer(self, tensor, raw=b"", path=INFER, **more):
        """The answer to an infer request of one input."""
        head = json.dumps({"inputs": [tensor], **more}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))} if raw else {}
        return self.ask("POST", path, head + raw, headers)

    def state(self):
        """The journal's rows and the state of every stream."""
        names = [one["name"] for one in json.loads(self.ask("GET", "/streams").body)["streams"]]
        states = {name: self.ask("GET", f"/streams/{name}/export").body for name in names}
        return states, journal_rows(self.folder)


def patched(old, patch):
    """A summary with what an event `patch` says, as docs/serve.md describes it."""
    if not (isinstance(patch, dict) and isinstance(old, dict | list)):
        return patch
    if isinstance(old, list):
        rows = dict(enumerate(old[patch["drop"] :]))
        rows |= {int(index): patched(rows[int(index)], change) for index, change in patch["set"].items()}
        return [*rows.values(), *patch["add"]]
    return old | {name: patched(old[name], change) for name, change in patch.items()}


def until_closed(connection):
    """Everything that a server sends until it closes the connection."""
    parts = []
    with suppress(ConnectionResetError):  # something that was sent was not read
        while part := connection.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def send_until_closed(connection, part, most):
    """Send the same again and again; whether the server closed the connection before so many bytes were sent."""
    with suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(0, most, len(part)):
            connection.sendall(part)
        return False
    return True


def resident_bytes(process):
    """How much memory a process has."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def journal_rows(folder):
    """Everything in the tables of a journal."""
    with closing(sqlite3.connect(f"file:{folder}/journal.sqlite?mode=ro", uri=True)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}


def features(array):
    """A tensor in JSON."""
    array = np.asarray(array, dtype=np.float64)
    return {"name": "features", "datatype": "FP32", "shape": [*array.shape], "data": array.ravel().tolist()}


def binary(array, datatype="FP32"):
    """A tensor that travels behind the JSON, and its bytes."""
    raw = np.asarray(array, dtype={"FP32": "<f4", "FP16": "<f2"}[datatype]).tobytes()
    about = {"name": "features", "datatype": datatype, "shape": [*np.shape(array)]}
    return {**about, "parameters": {"binary_data_size": len(raw)}}, raw


def pictures(*contents):
    """Pictures that travel behind the JSON, and their bytes."""
    raw = join_elements(contents)
    about = {"name": "image", "datatype": "BYTES", "shape": [len(contents)]}
    return {**about, "parameters": {"binary_data_size": len(raw)}}, raw


@contextmanager
def serving(file, folder, http=None, **settings):
    """A service of a feature file in this process."""
    served = ServedModel(load_features(file).classifier, "pta")
    with Service.open(served, folder, ServiceSettings(**settings)) as service, listen("127.0.0.1", 0) as listening:
        app = create_app(service, HttpSettings(TOKEN, **{"log": "json", **(http or {})}))
        server = uvicorn.Server(configured(app))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        asking = Asking(listening.getsockname()[1], TOKEN, folder)
        asking.service, asking.app = service, app
        thread.start()
        try:
            yield asking
        finally:
            service.drain(PATIENCE)
            server.should_exit = True
            thread.join(PATIENCE)


@contextmanager
def process(folder, *arguments, files=None):
    """`pta serve` in a process of its own, with its output; killed if it is still there at the end.

    With `files`, no more may be open in it.
    """
    limited = [] if files is None else ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh"]
    command = [*limited, sys.executable, "-m", "pta", "serve", "--data", str(folder), "--port", "0"]
    said, logged = folder.with_name(f"{folder.name}.out"), folder.with_name(f"{folder.name}.log")
    with said.open("w") as out, logged.open("w") as log, logged.open() as errors:
        started = subprocess.Popen([*command, *map(str, arguments)], stdout=out, stderr=log, stdin=subprocess.DEVNULL)
        started.stderr = errors
        try:
            wait_until(lambda: "\n" in said.read_text(), started)
            address, token = said.read_text().split()[0], (folder / "token").read_text().strip()
            asking = Asking(int(address.rstrip("/").rpartition(":")[2]), token, folder)
            asking.process, asking.said, asking.log = started, said, logged
            yield asking
        finally:
            if started.poll() is None:
                started.kill()
            started.wait(PATIENCE)
