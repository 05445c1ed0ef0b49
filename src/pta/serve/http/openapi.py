"""The OpenAPI document: the tables of routes and operations, with the descriptions in `openapi.json`."""

import json
import re
from collections.abc import Iterable
from importlib import resources
from typing import Any

from pta import __version__
from pta.serve.http.gate import Endpoint
from pta.serve.http.labels import LABEL_SCHEMA
from pta.serve.operations import LABELS, OPERATIONS, StreamOperation
from pta.serve.requests import NAME, OUTPUTS
from pta.serve.streams.row_export import MOST_ROWS
from pta.serve.streams.served_model import Shape

_KINDS: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    list[str]: {"type": "array", "items": {"type": "string"}},
    LABELS: {"type": "array", "items": LABEL_SCHEMA},
}


def document(endpoints: Iterable[Endpoint], shape: Shape) -> dict[str, Any]:
    """The whole document."""
    tensors = [{"$ref": f"#/components/schemas/{name}"} for name in ("Features", "Pictures")]
    known = {
        **{"version": __version__, "name": f"^{NAME}$", "outputs": [*OUTPUTS], "most_rows": MOST_ROWS},
        **{"batch": shape.batch, "dim": shape.dim, "classes": shape.classes},
        **{"model": shape.name, "label": shape.class_names[0], "feature": [0.1] * shape.dim},
        **{kind: [name for name, own in OUTPUTS.items() if own == kind] for kind in OUTPUTS.values()},
        "inputs": {"oneOf": tensors} if shape.takes_pictures else tensors[0],
    }
    text = (resources.files("pta.serve.http") / "openapi.json").read_text("utf-8")
    for name, value in known.items():
        text = text.replace(f'"${name}"', json.dumps(value))
    described = json.loads(text)
    whole = described["document"]
    errors = {
        status: {"description": says, "content": described["error"]} for status, says in described["errors"].items()
    }
    operations = {(one.method, one.path): one for one in OPERATIONS.values()}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        method, path = endpoint.method, endpoint.path
        if endpoint.summary:
            route = {"summary": endpoint.summary, **described["routes"][endpoint.described]}
            route["operationId"] = re.sub(r"\W+", "_", f"{method}{path}").strip("_").lower()
            route["parameters"] = [described["stream"]] * ("{name}" in path) + route.get("parameters", [])
            route["responses"] = {**route["responses"], **errors}
            if (method, path) in operations:
                route |= _request_body(operations[method, path], whole["components"]["schemas"])
            paths.setdefault(path, {})[method.lower()] = route
    return {**whole, "paths": paths}


def _request_body(operation: StreamOperation, schemas: dict[str, Any]) -> dict[str, Any]:
    """What an operation is told; its schema is added to the others."""
    if operation.takes_file:
        content: Any = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        return {"requestBody": {"required": True, "content": content}}
    if not operation.arguments:
        return {}
    properties = {}
    for argument in operation.arguments:
        schema = {**_KINDS[argument.kind], **argument.bounds, "description": argument.help}
        schema |= {"enum": argument.choices} if argument.choices else {}
        properties[argument.name] = schema if argument.required else {"anyOf": [schema, {"type": "null"}]}
    required = [argument.name for argument in operation.arguments if argument.required]
    body = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    schemas[operation.name.title()] = {"description": operation.summary, **body}
    named = {"$ref": f"#/components/schemas/{operation.name.title()}"}
    return {"requestBody": {"required": operation.needs_body, "content": {"application/json": {"schema": named}}}}
