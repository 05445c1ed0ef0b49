"""The infer route, plain ASGI without routing and models: it is what a service spends its time on."""

import asyncio
from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.types import Scope, Send

from pta.serve.http.metrics import Metrics
from pta.serve.http.protocol import JSON_LENGTH, VERSION, read_request, write_reply
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
