"""What the OpenAPI document says beyond the routes' own signatures: bodies, errors, and the infer route by hand."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from pta.serve.http.protocol import OUTPUTS
from pta.serve.operations import StreamOperation
from pta.serve.streams.served_model import Shape

_REASONS = {
    401: "No token, or a wrong one",
    404: "No such stream, model or route",
    405: "The route has other methods",
    408: "The body came too slowly",
    409: "Not possible in the present state of the stream",
    413: "The body is too large",
    415: "Content-Encoding is not read",
    421: "Unknown Host",
    422: "The request is not what it should be",
    429: "The queue is full, or the quota used up; Retry-After says when to try again",
    503: "Draining, too many requests (Retry-After), or nothing can be learned since the disk failed",
}


_ERROR = {"$ref": "#/components/schemas/Error"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _ExactlyOne(_Strict):
    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError(f"give either {' or '.join(type(self).model_fields)}")
        return self


class Error(BaseModel):
    """The body of every error."""

    error: str


class OperationResult(BaseModel):
    """What an operation on a stream did, or would do."""

    stream: str
    operation: str
    samples: int = Field(description="How many samples it concerns.")
    sequence: int | None = Field(description="The number of its row in the journal.")


class Login(BaseModel):
    """The body of `POST /login`, of which nothing else is looked at."""

    model_config = ConfigDict(extra="ignore", strict=True)

    token: str


def body_of(operation: StreamOperation) -> type[BaseModel]:
    """The body of a request for an operation, as its arguments declare it."""
    fields: dict[str, Any] = {}
    for argument in operation.arguments:
        kind: Any = Annotated[argument.kind, Field(description=argument.help, **argument.bounds)]
        default = ... if argument.required else False if argument.kind is bool else None
        fields[argument.name] = (kind | None if default is None else kind, default)
    base = _ExactlyOne if operation.exactly_one else _Strict
    return create_model(operation.name.title(), __base__=base, __doc__=operation.summary, **fields)


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error, "description": text} for status, text in _REASONS.items()
}


def document(app: FastAPI, shape: Shape, infer_paths: Sequence[str]) -> dict[str, Any]:
    """The whole document; the infer route is in it although the application does not know it."""
    if app.openapi_schema is None:
        whole = get_openapi(title=app.title, version=app.version, routes=app.routes)
        whole["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        whole["security"] = [{"token": []}]
        whole["paths"]["/login"]["post"]["security"] = []
        whole["paths"] |= {path: {"post": _infer(shape)} for path in infer_paths}
        app.openapi_schema = whole
    return app.openapi_schema


def _infer(shape: Shape) -> dict[str, Any]:
    parameters = {
        "stream": {"type": "string", "default": "default"},
        "learn": {"enum": [True, False, "try"], "default": "try"},
        "source": {"type": "string", "maxLength": 128},
        "top": {"type": "integer", "minimum": 1, "maximum": shape.classes},
        "binary_data_output": {"type": "boolean"},
    }
    features = _tensor("features", "FP32", [shape.batch, shape.dim], {"type": "number"})
    picture = _tensor("image", "BYTES", [shape.batch], {"type": "string", "contentEncoding": "base64"})
    tensors = {"oneOf": [features, picture]} if shape.takes_pictures else features
    output = _object(
        {"name": {"enum": [*OUTPUTS]}, "parameters": _object({"binary_data": {"type": "boolean"}})}, "name"
    )
    request = _object(
        {
            "id": {"type": "string", "maxLength": 128},
            "parameters": _object(parameters),
            "inputs": {"type": "array", "minItems": 1, "maxItems": 1, "items": tensors},
            "outputs": {"type": "array", "items": output},
        },
        "inputs",
    )
    binary = {"schema": {"type": "string", "format": "binary"}}
    content = {"application/json": {"schema": request}, "application/octet-stream": binary}
    refusals = {
        str(status): {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for status, text in _REASONS.items()
    }
    answers = {"description": "Answers", "content": {"application/json": {}, "application/octet-stream": binary}}
    described = {"required": True, "content": content}
    return {"summary": "Classify and learn", "requestBody": described, "responses": {"200": answers, **refusals}}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


def _tensor(name: str, datatype: str, most: list[int], element: dict[str, Any]) -> dict[str, Any]:
    sizes = [{"type": "integer", "minimum": 1, "maximum": most[0]}, *({"const": size} for size in most[1:])]
    shape = {"type": "array", "prefixItems": sizes, "minItems": len(sizes), "maxItems": len(sizes)}
    properties = {"name": {"const": name}, "datatype": {"const": datatype}, "shape": shape}
    return _object({**properties, "data": {"type": "array", "items": element}}, "name", "datatype", "shape", "data")
