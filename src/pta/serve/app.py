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
from pta.serve import openapi
from pta.serve.access_log import AccessLog
from pta.serve.events import Events
from pta.serve.gate import Gate, as_refused, error_body, error_headers
from pta.serve.http_settings import HttpSettings
from pta.serve.inference import Inference
from pta.serve.metrics import Metrics
from pta.serve.openapi import Login, Operation, Reset, Rewind, Unlearn
from pta.serve.protocol import VERSION, metadata
from pta.serve.refusals import Refused
from pta.serve.requests import NAME
from pta.serve.security import COOKIE, PAGE, Guard
from pta.serve.service import Service

_MEDIA_TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}

StreamName = Annotated[str, Path(pattern=f"^{NAME}$")]
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
    app.add_exception_handler(HTTPException, _unknown_route)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(PtaError, _failed)
    app.add_exception_handler(Exception, _failed)
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

    @app.delete("/streams/{name}", response_model=Operation, summary="Erase a stream")
    def delete(name: StreamName, dry_run: DryRun = False) -> Any:
        return service.delete(name, dry_run=dry_run)

    def add_operation(verb: str, operation: Callable[..., Any]) -> None:
        app.post(f"/streams/{{name}}/{verb}", response_model=Operation, summary=operation.__doc__)(operation)

    def freeze(name: StreamName, dry_run: DryRun = False) -> Any:
        """Learn nothing more until thawed."""
        return service.freeze(name, dry_run=dry_run)

    def thaw(name: StreamName, dry_run: DryRun = False) -> Any:
        """Learn again."""
        return service.thaw(name, dry_run=dry_run)

    def undo(name: StreamName, dry_run: DryRun = False) -> Any:
        """Lift the last operation in force."""
        return service.undo(name, dry_run=dry_run)

    def reset(name: StreamName, body: Reset | None = None, dry_run: DryRun = False) -> Any:
        """Forget everything, or what was learned about some classes."""
        return service.reset(name, None if body is None else body.numbers(service.shape), dry_run=dry_run)

    def rewind(name: StreamName, body: Rewind, dry_run: DryRun = False) -> Any:
        """Go back to a moment."""
        return service.rewind(name, to_sequence=body.sequence, to_time=body.time, dry_run=dry_run)

    def unlearn(name: StreamName, body: Unlearn, dry_run: DryRun = False) -> Any:
        """Be as if the samples of a source had never come."""
        return service.unlearn(name, body.source, erase=body.erase, dry_run=dry_run)

    def import_(
        name: StreamName,
        content: Annotated[bytes, Body(media_type="application/octet-stream")],
        dry_run: DryRun = False,
    ) -> Any:
        """Go on from an exported state."""
        return service.import_(name, content, dry_run=dry_run)

    for operation in (freeze, thaw, undo, reset, rewind, unlearn):
        add_operation(operation.__name__, operation)
    add_operation("import", import_)

    @app.get("/streams/{name}/export", response_class=Response, summary="The state as a file")
    def export(name: StreamName) -> Response:
        file = {"content-disposition": f'attachment; filename="{name}.safetensors"'}
        return Response(service.export(name), media_type="application/octet-stream", headers=file)

    @app.get("/streams/{name}/events", response_class=StreamingResponse, summary="Summaries as they change")
    async def watch(name: StreamName, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
        return events.answer(name, last_event_id)


def _add_page(app: FastAPI, guard: Guard) -> None:
    """The page, which is the same for all, and the login."""
    folder = resources.files("pta.serve") / "page"

    def add_file(path: str, file: str) -> None:
        content, media_type = (folder / file).read_bytes(), _MEDIA_TYPES[file.rpartition(".")[2]]

        async def give() -> Response:
            return Response(content, media_type=media_type)

        app.add_api_route(path, give, methods=["GET", "HEAD"], include_in_schema=False)

    for path, file in PAGE.items():
        add_file(path, file)

    @app.post("/login", status_code=204, summary="Change the token for a cookie")
    async def login(request: Request, body: Login) -> Response:
        if not guard.is_token(body.token):
            raise Refused(401, "this is not the token")
        answer = Response(status_code=204)
        path, secure = request.scope.get("root_path") or "/", request.url.scheme == "https"
        answer.set_cookie(COOKIE, guard.cookie, path=path, secure=secure, httponly=True, samesite="strict")
        return answer


async def _unknown_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = 422 if error.status_code == 400 else error.status_code  # 400: a body that is not JSON
    return _error(request, Refused(status, f"{request.method} {request.url.path}: {error.detail}"))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    return _error(request, Refused(422, f"{where}: {first['msg']}"))


async def _failed(request: Request, error: Exception) -> Response:
    return _error(request, as_refused(error))


def _error(request: Request, refused: Refused) -> Response:
    body = error_body(refused, request.scope["pta.number"])
    return Response(body, refused.status, error_headers(refused), media_type="application/json")
