"""Random requests to a running service: no failure inside, no traceback, and no change by what is refused.

`PTA_HTTP_FUZZ` chooses how many come from the OpenAPI document, `PTA_BODY_FUZZ` how many infer bodies are mutated.
"""

import json
import os
import random
from contextlib import closing
from http.client import HTTPConnection

import pytest
from effort import repeated
from http_serving import INFER, TOKEN, binary, features, serving
from hypothesis import HealthCheck, Phase, given, settings
from processes import PATIENCE
from serving import settle

from pta.data.features import load_features

CASES = int(os.environ.get("PTA_HTTP_FUZZ", repeated(120)))
BODIES = int(os.environ.get("PTA_BODY_FUZZ", repeated(600)))
DOCUMENTED = {200, 204, 401, 404, 405, 408, 409, 413, 415, 421, 422, 429}
ODD = (
    None,
    True,
    -1,
    0,
    2**63,
    2**64,
    1e308,
    -0.0,
    "",
    "x" * 200,
    "\0",
    "é\u202e",
    [],
    {},
    [[]],
    {"a": {"b": []}},
    "NaN",
)
PARTS = (b"{", b"}", b"[", b'"', b"\\u0000", b"\xff", b"1e999", b"-", b"null", b'"id":', b'"learn":false,', b"\0" * 4)


@pytest.fixture(scope="module")
def server(pets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve") / "state"
    with serving(pets, folder, {"max_body": 50_000}, auto_create=2, batch=8) as server:
        server.samples = load_features(pets).samples.features.numpy()
        assert server.infer(features(server.samples[:4]), parameters={"source": "left"}).status == 200
        yield server


def require_documented(status, body):
    """A request is answered or refused in one of the ways that are documented."""
    assert status in DOCUMENTED, (status, body)
    assert b"Traceback" not in body
    if status >= 400:
        assert json.loads(body).keys() == {"error"}


@pytest.mark.filterwarnings("ignore")
def test_requests_from_the_document_are_answered_or_refused(server):
    schemathesis = pytest.importorskip("schemathesis")
    document = json.loads(server.ask("GET", "/openapi.json").body)
    del document["paths"]["/streams/{name}/events"]  # which has no end
    operations = [one.ok() for one in schemathesis.openapi.from_dict(document).get_all_operations()]
    assert len(operations) > 20

    def check(operation):
        # A stream that is there, so that not every request ends with 404.
        @given(case=operation.as_strategy())
        @settings(
            max_examples=max(2, CASES // len(operations)),
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[*HealthCheck],
        )
        def run(case):
            if "name" in (case.path_parameters or {}) and len(case.path_parameters["name"]) % 2:
                case.path_parameters["name"] = "default"
            settle(server.service)  # rows of alarms follow the answers that raised them
            before = server.state()
            answer = case.call(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE)
            require_documented(answer.status_code, answer.content)
            if answer.status_code >= 400:
                assert server.state() == before, (case.method, case.path)

        run()

    for operation in operations:
        check(operation)


def mutated(random, value):
    """A JSON value with one thing in it changed."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice([*value])
        if random.random() < 0.15:
            return {name: one for name, one in value.items() if name != key}
        if random.random() < 0.1:
            return {**value, random.choice(("learn", "x", "name", key + "s")): random.choice(ODD)}
        return {**value, key: mutated(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        if random.random() < 0.3:
            return value[:place] + value[place + 1 :]
        return [*value[:place], mutated(random, value[place]), *value[place + 1 :]]
    return random.choice(ODD)


def damaged(random, body):
    """Bytes with something cut out, put in, doubled or flipped."""
    start = random.randrange(len(body) + 1)
    end = min(len(body), start + random.choice((0, 1, 4, 100)))
    new = random.choice((b"", random.choice(PARTS), body[start:end] * 2, random.randbytes(end - start)))
    return body[:start] + new + body[end:]


def random_request(random, samples):
    """The body of an infer request and its headers, nearly right."""
    rows = samples[random.randrange(200) :][: random.choice((1, 1, 3, 8, 9))]
    tensor, raw = random.choice((lambda: (features(rows), b""), lambda: binary(rows)))()
    learn = random.choice((True, False, "try"))
    request = {"id": str(random.randrange(50)), "inputs": [tensor], "parameters": {"learn": learn, "source": "left"}}
    if random.random() < 0.3:
        request["outputs"] = [{"name": "logits"}, {"name": "top_label", "parameters": {"binary_data": True}}]
    if random.random() < 0.7:
        request = mutated(random, request)
    head = json.dumps(request).encode()
    length = len(head) + random.choice((0, 0, 0, 0, 1, -1))
    if random.random() < 0.3:
        head = damaged(random, head)
    if raw and random.random() < 0.2:
        raw = damaged(random, raw)
    given = random.choice((str(length), str(length), str(length), "-1", "x", "9" * 40)) if raw else None
    return head + raw, {} if given is None else {"Inference-Header-Content-Length": given}


def test_mutated_bodies_are_answered_or_refused(server):
    chance = random.Random(int(os.environ.get("PTA_FUZZ_SEED", "1")))
    seen = set()
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as connection:
        for number in range(BODIES):
            body, headers = random_request(chance, server.samples)
            settle(server.service)  # rows of alarms follow the answers that raised them
            version = server.service.version("default")
            before = server.state() if number % 20 == 0 else None
            connection.request("POST", INFER, body, {"Authorization": f"Bearer {TOKEN}", **headers})
            answer = connection.getresponse()
            require_documented(answer.status, answer.read())
            seen.add(answer.status)
            if answer.status >= 400:
                assert server.service.version("default") == version, body
                assert before is None or server.state() == before, body
    assert {200, 409, 422} <= seen
