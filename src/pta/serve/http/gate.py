"""What every request passes: a number, the guard, the limits of its body, the table of routes, and the way of errors.

On the way back each answer gets headers, and a line of the log.
"""

from collections.abc import Callable, Iterable
from functools import cache
from inspect import iscoroutinefunction
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pta.errors import FileInUse, MachineFailure, UserMistake
from pta.serve.http.body import OPERATION, WITHOUT_TOKEN, Bodies, Body, ClientLeft, Limit
from pta.serve.http.connections import Connections
from pta.serve.http.monitoring import AccessLog, Metrics
from pta.serve.http.security import HEADERS, Guard, HttpSettings
from pta.serve.open_files import is_out_of_files
from pta.serve.requests import Refused

_CLOSE = (b"connection", b"close")
_is_asynchronous = cache(iscoroutinefunction)
_CLIENT_LEFT = 499  # as nginx logs it; nobody receives it


class Json(Response):
    """A body that is a plain value."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


class Endpoint(NamedTuple):
    """A route, and what the OpenAPI document says of it."""

    method: str
    path: str  # with {name} for the name of a stream
    answer: Response | Callable[[Request, str], Any]  # always the same, or a function of the request and that name
    summary: str = ""  # without one, the document does not have it
    described: str = "value"  # how, in `openapi.json`
    limit: Limit | None = OPERATION  # of the body of a request; None: only that of all


class Gate:
    """The application, plain ASGI because every request pays for it.

    Answers find the body of a request in `scope["pta.body"]` and its headers in `scope["pta.headers"]`. They may leave
    the name of a stream for the log in `scope["pta.stream"]`.
    """

    def __init__(self, endpoints: Iterable[Endpoint], guard: Guard, metrics: Metrics, settings: HttpSettings) -> None:
        self.endpoints: dict[str, dict[str, Endpoint]] = {}  # by path and method
        for endpoint in endpoints:
            self.endpoints.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        self._guard = guard
        self._metrics = metrics
        self._log = AccessLog(settings.log)
        self.settings = settings
        self.connections = Connections(settings.connections)
        self._bodies = Bodies(settings.max_body, settings.body_timeout)
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        number = next(self._numbers)
        status = 0
        method = scope["method"]
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        route = ""  # for a path that matches none, so that clients cannot make up metrics
        headers = scope["pta.headers"] = dict(scope["headers"])
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
            has_token = self._guard.require(method, path, headers)
            if has_token:
                scope["pta.connection"].authorise()
            pattern, name = _pattern(path)
            if pattern not in self.endpoints:
                raise Refused(f"{method} {path}: Not Found", 404)
            route, scope["pta.stream"] = pattern, name or None
            if method not in self.endpoints[route]:
                raise Refused(
                    f"{method} {path}: Method Not Allowed; it takes {' or '.join(self.endpoints[route])}", 405
                )
            endpoint = self.endpoints[route][method]
            scope["pta.body"] = await body.read(endpoint.limit if has_token else WITHOUT_TOKEN)
            response = await _answered(endpoint, Request(scope, receive), name)
            await response(scope, receive, answer)
        except ClientLeft:
            status = _CLIENT_LEFT
        except Exception as error:
            refused = as_refused(error)
            if refused.status == 500:
                self._log.failure(number, error)
            if status == 0:
                told = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
                told |= {"www-authenticate": "Bearer"} if refused.status == 401 else {}
                body_of_error = Json({"error": f"{refused} (request {number})"}, refused.status, told)
                await body_of_error(scope, receive, answer)
        finally:
            body.release()
            seconds = perf_counter() - started
            self._metrics.request(route, status, seconds)
            self._log.request(number, method, path, scope.get("pta.stream"), status, seconds)


def _pattern(path: str) -> tuple[str, str]:
    """A path as the table has it, and the name of the stream in it.

    >>> _pattern("/streams/default/undo")
    ('/streams/{name}/undo', 'default')
    """
    if not path.startswith("/streams/") or path[9:10] in ("", "/"):
        return path, ""
    name, slash, rest = path.removeprefix("/streams/").partition("/")
    return f"/streams/{{name}}{slash}{rest}", name


async def _answered(endpoint: Endpoint, request: Request, name: str) -> Response:
    answer = endpoint.answer
    if isinstance(answer, Response):
        return answer
    if _is_asynchronous(answer):
        return await answer(request, name)
    given = await run_in_threadpool(answer, request, name)
    return given if isinstance(given, Response) else Json(given)


def as_refused(error: Exception) -> Refused:
    """What a client is told of an error: its own mistakes in full, of others nothing."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, MachineFailure | FileInUse):
        return Refused(str(error), 503)
    if is_out_of_files(error):
        return Refused("too many files are open; try again soon", 503, 1)
    return Refused(str(error)) if isinstance(error, UserMistake) else Refused("internal error; the log has more", 500)
