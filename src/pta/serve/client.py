"""A client of `pta serve` that needs nothing but NumPy and the standard library."""

import json
import time
import uuid
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import ArrayLike

from pta.errors import InvalidParameter, MachineFailure, PtaError, require_known
from pta.serve.operations import OPERATIONS
from pta.serve.requests import TOP_OUTPUTS, USUAL_OUTPUTS, Refused, Result, read_result, write_tensor

_JSON_LENGTH = "Inference-Header-Content-Length"
_TRY_AGAIN = frozenset((429, 503))
_LONGEST_WAIT = 30.0  # seconds between two tries, whatever the service asks for


class Client(AbstractContextManager["Client"]):
    """One connection to a service, for one thread.

    What fails on the way is sent again with the same id, so that nothing is learned twice.

    Args:
        server: such as http://127.0.0.1:8080.
        token: what the file `token` in the service's data folder holds.
        model: the name that the service was started with.
        retries: how often a request is sent again.
        timeout: seconds that an answer may take.
        binary: whether arrays and pictures travel as they are, or in JSON.
    """

    def __init__(
        self, server: str, token: str, *, model: str = "pta", retries: int = 5, timeout: float = 60, binary: bool = True
    ) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidParameter(f"{server} is not the address of a service; it begins with http://")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        self._server = server
        self._root = parts.path.rstrip("/")
        self._model = model
        self._headers = {"Authorization": f"Bearer {token}"}
        self._retries, self._binary = retries, binary

    def infer(
        self,
        features: ArrayLike | None = None,
        *,
        pictures: Sequence[bytes] | None = None,
        stream: str = "default",
        learn: bool | Literal["try"] = "try",
        source: str | None = None,
        top: int | None = None,
        logits: bool = False,
        id: str | None = None,
    ) -> Result:
        """Classify B samples, given as features B×d or as the bytes of picture files, and learn from them."""
        if (features is None) == (pictures is None):
            raise InvalidParameter("give either features or pictures")
        names = [*USUAL_OUTPUTS, *(TOP_OUTPUTS if top else ()), *(["logits"] if logits else ())]
        parameters = {"stream": stream, "learn": learn, "source": source, "top": top}
        if features is not None:
            array = np.atleast_2d(np.asarray(features, dtype="<f4"))
            tensor, raw = write_tensor("features", "FP32", array, binary=self._binary)
        else:
            contents = [one if self._binary else b64encode(one).decode() for one in pictures or ()]
            tensor, raw = write_tensor("image", "BYTES", np.array(contents, dtype=object), binary=self._binary)
        request = {
            "id": id or uuid.uuid4().hex,
            "parameters": {name: value for name, value in parameters.items() if value is not None},
            "inputs": [tensor],
            "outputs": [{"name": name, "parameters": {"binary_data": self._binary}} for name in names],
        }
        head = json.dumps(request, default=np.ndarray.tolist).encode()
        headers = {_JSON_LENGTH: str(len(head))} if raw else {}
        content, length = self._ask("POST", f"/v2/models/{self._model}/infer", head + raw, headers)
        return read_result(content, length)

    def streams(self) -> list[dict[str, Any]]:
        """All streams."""
        return self._json("GET", "/streams")["streams"]

    def create(self, stream: str) -> dict[str, Any]:
        """Make a stream unless it is there."""
        return self._json("PUT", _place(stream))

    def show(self, stream: str = "default") -> dict[str, Any]:
        """What is known of a stream."""
        return self._json("GET", _place(stream))

    def rows(self, stream: str = "default", after: int = 0) -> dict[str, Any]:
        """Some learned samples after a sequence number, with what they were answered.

        `rows` are in order, `next` is the sequence number to go on after, None at the end, and `left_out` counts rows
        whose answers a killed process did not write.
        """
        return self._json("GET", f"{_place(stream)}/rows?after={after}")

    def operate(self, stream: str, operation: str, *, dry_run: bool = False, **argument: Any) -> dict[str, Any]:
        """Change a stream (`pta.serve.operations` lists how), e.g. `operate("default", "rewind", sequence=1000)`.

        With `dry_run` the samples concerned are only counted.
        """
        require_known("operation", operation, OPERATIONS)
        how = OPERATIONS[operation]
        path = how.path.format(name=quote(stream, safe="")) + ("?dry_run=true" if dry_run else "")
        if how.takes_file:
            return self._json(how.method, path, argument["content"], "application/octet-stream")
        return self._json(how.method, path, json.dumps(argument).encode() if how.arguments else b"")

    def delete(self, stream: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Delete a stream with everything it has learned."""
        return self.operate(stream, "delete", dry_run=dry_run)

    def import_state(self, stream: str, content: bytes, *, dry_run: bool = False) -> dict[str, Any]:
        """Go on from the content of a state file."""
        return self.operate(stream, "import", dry_run=dry_run, content=content)

    def export_state(self, stream: str = "default") -> bytes:
        """The state as the content of a file that `pta.load_adapter` reads."""
        return self._ask("GET", f"{_place(stream)}/export")[0]

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _json(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> dict[str, Any]:
        return json.loads(self._ask(method, path, body, {"Content-Type": kind})[0])

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, int | None]:
        """The body of an answer and the length of its JSON; an error is raised as `Refused`."""
        repeatable = method == "GET" or path.startswith("/v2/")  # an operation could be done twice
        if not repeatable:
            self.close()  # the service may have ended an idle connection, which is found out too late
        tries = 0
        while True:
            tries, wait = tries + 1, 0.1 * 2**tries
            try:
                if self._connection.sock is None:
                    self._connection.connect()
                with suppress(BrokenPipeError, ConnectionResetError):  # a refusal may come before all is sent
                    self._connection.request(method, self._root + path, body, {**self._headers, **(headers or {})})
                answer = self._connection.getresponse()
                content = answer.read()
            except (OSError, HTTPException) as error:
                self.close()
                failure: PtaError = MachineFailure(
                    f"{self._server} does not answer: {error or type(error).__name__}; is pta serve running there? "
                    "PTA_SERVER or --server names another address"
                )
                final = not repeatable
            else:
                if answer.status < 300:
                    length = answer.headers.get(_JSON_LENGTH)
                    return content, None if length is None else int(length)
                failure = _refusal(answer, content)
                wait = failure.retry_after or wait
                final = answer.status not in _TRY_AGAIN
            if final or tries > self._retries:
                raise failure
            time.sleep(min(wait, _LONGEST_WAIT))


def _place(stream: str) -> str:
    return f"/streams/{quote(stream, safe='')}"


def _refusal(answer: HTTPResponse, content: bytes) -> Refused:
    try:
        message = str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        message = f"the service answered {answer.status}"
    after = answer.headers.get("Retry-After", "")
    return Refused(message, answer.status, int(after) if after.isdigit() else None)
