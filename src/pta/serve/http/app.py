"""The HTTP application: every route of the service.

All errors are `{"error": …}`. Routes that are plain functions run in a thread of their own, because the service may
wait for its disk.
"""

from collections.abc import Callable
from importlib import resources
from typing import Annotated, Any

import orjson
from fastapi import Body, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from pta import __version__
from pta.errors import PtaError
from pta.serve.http import openapi
from pta.serve.http.events import Events
from pta.serve.http.gate import Gate, Inference, as_refused, error_response
from pta.serve.http.monitoring import AccessLog, Metrics
from pta.serve.http.openapi import Login, OperationResult, body_of
from pta.serve.http.protocol import VERSION, metadata
from pta.serve.http.security import COOKIE, PAGE, Guard, HttpSettings
from pta.serve.operations import OPERATIONS, StreamOperation
from pta.serve.requests import NAME, Refused
from pta.serve.streams.service import Service

_MEDIA_TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}

StreamName = Annotated[str, Path(pattern=f"^{NAME}$")]
Content = Annotated[bytes, Body(media_type="application/octet-stream")]
DryRun = Annotated[bool, Query(description="Only count the samples concerned.")]


class Json(Response):
    """A body that is a plain value."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def create_app(service: Service, settings: HttpSettings) -> Gate:
    """The application of a service, to be run by uvicorn."""
    app = FastAPI(
        title="pta serve",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        root_path=settings.root_path,
        redirect_slashes=False,
        default_response_class=Json,
        responses=openapi.ERRORS,
    )
    guard = Guard(settings.token, settings.allowed_hosts, open_health=settings.open_health)
    metrics = Metrics(service, per_stream=settings.stream_metrics)
    infer = Inference(service, metrics)
    for kind in (HTTPException, RequestValidationError, PtaError, Exception):
        app.add_exception_handler(kind, _failed)
    _add_protocol(app, service)
    _add_streams(app, service, Events(service, most=max(1, settings.connections // 2)))
    _add_page(app, guard)

    @app.get("/metrics", response_class=Response, summary="Metrics for Prometheus")
    def read_metrics() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.openapi = lambda: openapi.document(app, service.shape, infer.paths)  # type: ignore[method-assign]
    log = AccessLog(settings.log)
    return Gate(app, guard=guard, infer=infer, log=log, metrics=metrics, settings=settings)


def _add_protocol(app: FastAPI, service: Service) -> None:
    """Open Inference Protocol v2 but for its infer route, which `Gate` answers."""
    shape = service.shape
    model, version = f"/v2/models/{shape.name}", f"/v2/models/{shape.name}/versions/{VERSION}"

    def require_ready() -> dict[str, bool]:
        if not service.ready:
            raise Refused(503, service.reason or "not ready")
        return {"ready": True}

    for path in ("/v2/health/ready", f"{model}/ready", f"{version}/ready"):
        app.add_api_route(path, require_ready, summary="Whether requests are taken")
    for path in (model, version):
        app.add_api_route(path, lambda: metadata(shape), summary="Inputs and outputs", operation_id=path)

    @app.get("/v2/health/live", summary="Whether the process answers")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2", summary="What this service is")
    async def server() -> dict[str, Any]:
        about = {"name": "pta", "version": __version__, "extensions": ["binary_tensor_data"]}
        return {**about, "model": shape.name, "method": shape.method, "durable": shape.durable}


def _add_streams(app: FastAPI, service: Service, events: Events) -> None:
    """What can be done with streams besides asking them."""

    @app.get("/streams", summary="All streams")
    def list_streams() -> dict[str, Any]:
        return {"streams": service.streams()}

    @app.put("/streams/{name}", summary="Make a stream unless it is there")
    def create(name: StreamName) -> dict[str, Any]:
        return service.create(name)

    @app.get("/streams/{name}", summary="What is known of a stream")
    def show(name: StreamName) -> dict[str, Any]:
        return service.summary(name)

    for operation in OPERATIONS.values():
        summary, route = operation.summary, _operation_route(service, operation)
        app.add_api_route(
            operation.path, route, methods=[operation.method], response_model=OperationResult, summary=summary
        )

    @app.get("/streams/{name}/export", response_class=Response, summary="The state as a file")
    def export(name: StreamName) -> Response:
        file = {"content-disposition": f'attachment; filename="{name}.safetensors"'}
        return Response(service.export(name), media_type="application/octet-stream", headers=file)

    @app.get("/streams/{name}/events", response_class=StreamingResponse, summary="Summaries as they change")
    async def watch(name: StreamName, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
        return events.answer(name, last_event_id)


def _operation_route(service: Service, operation: StreamOperation) -> Callable[..., Any]:
    """What answers a request for an operation."""

    def operate(name: StreamName, dry_run: DryRun = False) -> Any:
        return service.operate(name, operation.name, dry_run=dry_run)

    def operate_with_file(name: StreamName, content: Content, dry_run: DryRun = False) -> Any:
        return service.operate(name, operation.name, dry_run=dry_run, content=content)

    route: Callable[..., Any] = operate_with_file if operation.takes_file else operate
    if operation.arguments and not operation.takes_file:
        is_optional = not (operation.exactly_one or any(argument.required for argument in operation.arguments))
        kind: Any = body_of(operation) | None if is_optional else body_of(operation)
        given: Any = Body(None) if is_optional else Body()

        def operate_with_body(name: StreamName, body: kind = given, dry_run: DryRun = False) -> Any:
            argument = {} if body is None else body.model_dump(exclude_none=True)
            return service.operate(name, operation.name, dry_run=dry_run, **argument)

        route = operate_with_body
    route.__name__ = operation.name  # which the document names it by
    return route


def _add_page(app: FastAPI, guard: Guard) -> None:
    """The page, which is the same for all, and the login."""
    folder = resources.files("pta.serve.http") / "page"

    def add_file(path: str, file: str) -> None:
        content, media_type = (folder / file).read_bytes(), _MEDIA_TYPES[file.rpartition(".")[2]]

        async def give() -> Response:
            return Response(content, media_type=media_type)

        app.add_api_route(path, give, methods=["GET", "HEAD"], include_in_schema=False)

    for path, file in PAGE.items():
        add_file(path, file)

    @app.post("/login", status_code=204, summary="Exchange the token for a session cookie")
    async def login(request: Request, body: Login) -> Response:
        if not guard.is_token(body.token):
            raise Refused(401, "this is not the token")
        answer = Response(status_code=204)
        path, secure = request.scope.get("root_path") or "/", request.url.scheme == "https"
        answer.set_cookie(COOKIE, guard.cookie, path=path, secure=secure, httponly=True, samesite="strict")
        return answer


async def _failed(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # of the router
        status = 422 if error.status_code == 400 else error.status_code  # 400: a body that is not JSON
        error = Refused(status, f"{request.method} {request.url.path}: {error.detail}")
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
        error = Refused(422, f"{where}: {first['msg']}")
    return error_response(as_refused(error), request.scope["pta.number"])
