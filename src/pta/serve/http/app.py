"""The HTTP application: the table of every route of the service.

Answers that are plain functions run in a thread of their own, because the service may wait for its disk.
"""

import asyncio
from importlib import resources
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from pta import __version__
from pta.errors import shown
from pta.serve.http import protocol
from pta.serve.http.body import LABELS, OPERATION
from pta.serve.http.events import Events
from pta.serve.http.gate import Endpoint, Gate, Json
from pta.serve.http.monitoring import Metrics
from pta.serve.http.openapi import document
from pta.serve.http.security import COOKIE, PAGE, Guard, HttpSettings
from pta.serve.operations import OPERATIONS, StreamOperation
from pta.serve.requests import Refused
from pta.serve.streams.row_export import MOST_ROWS
from pta.serve.streams.service import Service

_LARGE_BODY = 2**18  # bytes that are parsed beside the event loop
_MEDIA_TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_BYTES = "application/octet-stream"
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class Tensors(Response):
    """The answer to an infer request; Starlette would take its headers apart and put them together again."""

    def __init__(self, content: bytes, json_length: int | None) -> None:
        self.status_code, self.body, self.background = 200, content, None
        self.raw_headers = [(b"content-length", b"%d" % len(content))]
        if json_length is None:
            self.raw_headers.append((b"content-type", b"application/json"))
        else:
            self.raw_headers += [(b"content-type", _BYTES.encode()), (protocol.JSON_LENGTH, b"%d" % json_length)]


def create_app(service: Service, settings: HttpSettings) -> Gate:
    """The application of a service, to be run by uvicorn."""
    guard = Guard(settings.token, settings.allowed_hosts, open_health=settings.open_health)
    metrics = Metrics(service, per_stream=settings.stream_metrics)
    events = Events(service, most=max(1, settings.connections // 2))

    def read_metrics(*_: object) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    endpoints = [
        *_protocol(service, metrics),
        *_streams(service, events),
        *_page(guard),
        Endpoint("GET", "/metrics", read_metrics, "Metrics for Prometheus", "file"),
    ]
    endpoints.append(Endpoint("GET", "/openapi.json", Json(document(endpoints, service.shape))))
    return Gate(endpoints, guard, metrics, settings)


def _protocol(service: Service, metrics: Metrics) -> list[Endpoint]:
    """Open Inference Protocol v2."""
    shape = service.shape

    def require_ready(*_: object) -> dict[str, bool]:
        if not service.ready:
            raise Refused(service.reason or "not ready", 503)
        return {"ready": True}

    async def infer(request: Request, _: str) -> Response:
        body = request.scope.pop("pta.body")
        length = request.scope["pta.headers"].get(protocol.JSON_LENGTH)
        if len(body) > _LARGE_BODY:
            asked, wanted = await run_in_threadpool(protocol.read_request, body, length, shape)
        else:
            asked, wanted = protocol.read_request(body, length, shape)
        del body  # pictures are copies, and both would stay until the answer
        request.scope["pta.stream"] = asked.stream
        reply = await asyncio.wrap_future(service.submit(asked))
        metrics.reply(reply)
        return Tensors(*protocol.write_reply(reply, wanted, shape.name))

    about: dict[str, Any] = {"name": "pta", "version": __version__, "extensions": ["binary_tensor_data"]}
    about |= {"model": shape.name, "method": shape.method, "durable": shape.durable}
    asks_whether = "Whether requests are taken"
    endpoints = [
        Endpoint("GET", "/v2", Json(about), "What this service is"),
        Endpoint("GET", "/v2/health/live", Json({"live": True}), "Whether the process answers"),
        Endpoint("GET", "/v2/health/ready", require_ready, asks_whether),
    ]
    for model in (f"/v2/models/{shape.name}", f"/v2/models/{shape.name}/versions/{protocol.VERSION}"):
        endpoints += [
            Endpoint("GET", model, Json(protocol.metadata(shape)), "Inputs and outputs"),
            Endpoint("GET", f"{model}/ready", require_ready, asks_whether),
            Endpoint("POST", f"{model}/infer", infer, "Classify and learn", "infer", limit=None),
        ]
    return endpoints


def _streams(service: Service, events: Events) -> list[Endpoint]:
    """What can be done with streams besides asking them."""

    def operating(operation: StreamOperation) -> Endpoint:
        def operate(request: Request, name: str) -> Any:
            given = request.query_params.get("dry_run", "false")
            if given.lower() not in _FLAGS:
                raise Refused("dry_run must be true or false")
            argument = protocol.read_arguments(operation, request.scope["pta.body"])
            return service.operate(name, operation.name, dry_run=_FLAGS[given.lower()], **argument)

        limit = None if operation.takes_file else LABELS if operation.takes_labels else OPERATION
        return Endpoint(operation.method, operation.path, operate, operation.summary, "operation", limit)

    def export(_: Request, name: str) -> Response:
        file = {"content-disposition": f'attachment; filename="{name}.safetensors"'}
        return Response(service.export(name), media_type=_BYTES, headers=file)

    def rows(request: Request, name: str) -> dict[str, Any]:
        after = _whole_number(request, "after", 0, 0, 2**62 - 1)
        return service.rows(name, after, _whole_number(request, "limit", MOST_ROWS, 1, MOST_ROWS))

    async def watch(_: Request, name: str) -> Response:
        return events.answer(name)

    stream = "/streams/{name}"
    return [
        Endpoint("GET", "/streams", lambda *_: {"streams": service.streams()}, "All streams"),
        Endpoint("PUT", stream, lambda _, name: service.create(name), "Make a stream unless it is there"),
        Endpoint("GET", stream, lambda _, name: service.summary(name), "What is known of a stream"),
        *map(operating, OPERATIONS.values()),
        Endpoint("GET", f"{stream}/rows", rows, "Learned samples with their answers, page by page", "rows"),
        Endpoint("GET", f"{stream}/export", export, "The state as a file", "file"),
        Endpoint("GET", f"{stream}/events", watch, "What changes of a stream", "events"),
    ]


def _whole_number(request: Request, name: str, usual: int, least: int, most: int) -> int:
    """A number in the query of a request."""
    given = request.query_params.get(name, str(usual))
    if not (given.isascii() and given.isdecimal() and len(given) < 20 and least <= int(given) <= most):
        raise Refused(f"{name} must be a whole number from {least} to {most:,}, got {shown(given)}")
    return int(given)


def _page(guard: Guard) -> list[Endpoint]:
    """The page, which is the same for all, and the login."""

    async def login(request: Request, _: str) -> Response:
        token = protocol.read_object(request.scope["pta.body"]).get("token")
        if not isinstance(token, str):
            raise Refused("token must be a text")
        if not guard.is_token(token):
            raise Refused("this is not the token", 401)
        answer = Response(status_code=204)
        path = request.scope.get("root_path") or "/"
        secure = request.scope["scheme"] == "https"
        answer.set_cookie(COOKIE, guard.cookie, path=path, secure=secure, httponly=True, samesite="strict")
        return answer

    endpoints = [Endpoint("POST", "/login", login, "Exchange the token for a session cookie", "login")]
    package = resources.files("pta")
    base = (package / "assets" / "base.css").read_bytes()
    for path, file in PAGE.items():
        text = (package / "serve/http/page" / file).read_bytes()
        content = Response(
            base + text if file == "page.css" else text, media_type=_MEDIA_TYPES[file.rpartition(".")[2]]
        )
        endpoints += [Endpoint(method, path, content) for method in ("GET", "HEAD")]
    return endpoints
