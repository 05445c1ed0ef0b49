"""What every request passes: a number, the guard, the limits of its body; on the way back, headers and a log line."""

import asyncio
from collections.abc import Mapping
from itertools import count
from time import perf_counter

import orjson
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pta.errors import FileInUse, MachineFailure, UserMistake
from pta.serve.http.body import OPERATION, WITHOUT_TOKEN, Bodies, Body, ClientLeft
from pta.serve.http.connections import Connections
from pta.serve.http.monitoring import AccessLog, Metrics
from pta.serve.http.protocol import JSON_LENGTH, VERSION, read_request, write_reply
from pta.serve.http.security import HEADERS, Guard, HttpSettings
from pta.serve.open_files import is_out_of_files
from pta.serve.operations import OPERATIONS
from pta.serve.requests import Refused
from pta.serve.streams.service import Service

_LARGE_BODY = 2**18  # bytes that are parsed beside the event loop
_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")


class Inference:
    """Answers infer requests whose bodies were read."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service, self._metrics, self._shape = service, metrics, service.shape
        model = f"/v2/models/{self._shape.name}"
        self.paths = (f"{model}/infer", f"{model}/versions/{VERSION}/infer")

    async def __call__(self, scope: Scope, headers: Mapping[bytes, bytes], body: bytes, send: Send) -> None:
        """Answer one."""
        length = headers.get(JSON_LENGTH)
        if len(body) > _LARGE_BODY:
            request, wanted = await run_in_threadpool(read_request, body, length, self._shape)
        else:
            request, wanted = read_request(body, length, self._shape)
        del body  # pictures are copies, and both would stay until the answer
        scope["path_params"] = {"name": request.stream}
        reply = await asyncio.wrap_future(self._service.submit(request))
        self._metrics.reply(reply)
        content, json_length = write_reply(reply, wanted, self._shape.name)
        kind = [_JSON] if json_length is None else [_BINARY, (JSON_LENGTH, b"%d" % json_length)]
        start = {"status": 200, "headers": [*kind, (b"content-length", b"%d" % len(content))]}
        await send({"type": "http.response.start", **start})
        await send({"type": "http.response.body", "body": content})


_JSON = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")
_FILE_ROUTES = tuple(f"/{operation.name}" for operation in OPERATIONS.values() if operation.takes_file)
_CLIENT_LEFT = 499  # as nginx logs it; nobody receives it


class Gate:
    """The outermost part of the application, plain ASGI because every request pays for it.

    Routes find the number of a request in `scope["pta.number"]` and leave the name of the stream in the path
    parameters.
    """

    def __init__(
        self, app: FastAPI, *, guard: Guard, infer: Inference, log: AccessLog, metrics: Metrics, settings: HttpSettings
    ) -> None:
        self.app, self._guard, self._infer, self._log, self._metrics = app, guard, infer, log, metrics
        self.settings, self.connections = settings, Connections(settings.connections)
        self._bodies = Bodies(settings.max_body, settings.body_timeout)
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, number, status = perf_counter(), next(self._numbers), 0
        scope["pta.number"] = number
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        headers = dict(scope["headers"])
        body = Body(self._bodies, receive, headers)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS, (b"x-request-number", b"%d" % number)]
                if status == 401 or not body.is_read:  # what else the client sends is not read
                    message["headers"].append(_CLOSE)
            await send(message)

        try:
            has_token = self._guard.require(scope["method"], path, headers)
            if has_token:
                scope["pta.connection"].authorise()
            if path not in self._infer.paths:
                limit = WITHOUT_TOKEN if not has_token else None if path.endswith(_FILE_ROUTES) else OPERATION
                await self.app(scope, _having_read(await body.read(limit), receive), answer)
            elif scope["method"] == "POST":
                await self._infer(scope, headers, await body.read(), answer)
            else:
                raise Refused(405, f"{path} takes POST")
        except ClientLeft:
            status = _CLIENT_LEFT
        except Exception as error:
            refused = as_refused(error)
            if refused.status == 500:
                self._log.failure(number, error)
            if status == 0:
                await error_response(refused, number)(scope, receive, answer)
        finally:
            body.release()
            seconds, stream = perf_counter() - started, scope.get("path_params", {}).get("name")
            # The pattern that a path matched; empty for none, so that clients cannot make up metrics.
            is_infer = path in self._infer.paths
            route = self._infer.paths[0] if is_infer else getattr(scope.get("route"), "path", "")
            self._metrics.request(route, status, seconds)
            self._log.request(number, scope["method"], path, stream, status, seconds)


def as_refused(error: Exception) -> Refused:
    """What a client is told of an error: its own mistakes in full, of others nothing."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, MachineFailure | FileInUse):
        return Refused(503, str(error))
    if is_out_of_files(error):
        return Refused(503, "too many files are open; try again soon", 1)
    return (
        Refused(422, str(error)) if isinstance(error, UserMistake) else Refused(500, "internal error; the log has more")
    )


def error_response(refused: Refused, number: int) -> Response:
    """An error with the number under which the log has the request."""
    headers = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    body = orjson.dumps({"error": f"{refused} (request {number})"})
    return Response(body, refused.status, headers, media_type="application/json")


def _having_read(body: bytes, receive: Receive) -> Receive:
    """What gives the body once, then what comes after it."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again
