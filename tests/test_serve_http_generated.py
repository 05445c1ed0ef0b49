"""The OpenAPI document of a running service: its examples hold, and a client that is generated from it works."""

import importlib
import json
import subprocess
import sys

import pytest
from http_serving import INFER, TOKEN, serving

from pta.data.features import load_features

jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def server(pets, tmp_path_factory):
    with serving(pets, tmp_path_factory.mktemp("serve") / "state", reject_below=0.5) as server:
        yield server


@pytest.fixture(scope="module")
def document(server):
    return json.loads(server.ask("GET", "/openapi.json").body)


def require_valid(document, content, value):
    """That a value is what the document says of a body."""
    schema = {**content["schema"], "components": document["components"]}
    jsonschema.validate(value, schema, cls=jsonschema.Draft202012Validator)


def test_the_examples_of_infer_are_valid_and_like_a_real_answer(server, document):
    route = document["paths"][INFER]["post"]
    asks, answers = route["requestBody"]["content"], route["responses"]["200"]["content"]
    told = answers["application/json"]["example"]
    require_valid(document, asks["application/json"], asks["application/json"]["example"])
    require_valid(document, answers["application/json"], told)
    answer = json.loads(server.ask("POST", INFER, asks["application/json"]["example"]).body)
    assert (answer.keys(), answer["parameters"]) == (told.keys(), told["parameters"])
    assert [{**one, "data": 0} for one in answer["outputs"]] == [{**one, "data": 0} for one in told["outputs"]]


def test_every_answer_of_infer_is_as_described(server, document):
    (tensor,) = document["paths"][INFER]["post"]["requestBody"]["content"]["application/json"]["example"]["inputs"]
    described = document["paths"][INFER]["post"]["responses"]["200"]
    every = [{"name": name} for name in document["components"]["schemas"]["Output"]["properties"]["name"]["enum"]]
    server.ask("POST", "/streams/default/freeze")
    for more in ({}, {"outputs": every}, {"parameters": {"top": 2, "learn": False}}):
        answer = server.infer(tensor, **more)
        require_valid(document, described["content"]["application/json"], json.loads(answer.body))
    server.ask("POST", "/streams/default/thaw")
    binary = server.infer(tensor, parameters={"binary_data_output": True})
    assert binary.headers["content-type"] in described["content"]
    assert all(name in binary.headers for name in described["headers"])


def test_errors_are_as_described(server, document):
    described = document["paths"][INFER]["post"]["responses"]
    for answer in (server.infer({}), server.ask("POST", INFER, {}, token="another-token-entirely")):
        content = described[str(answer.status)]["content"]["application/json"]
        require_valid(document, content, json.loads(answer.body))
        require_valid(document, content, content["example"])


def test_a_generated_client_makes_a_stream_and_reads_a_label(server, pets, document, tmp_path, monkeypatch):
    pytest.importorskip("openapi_python_client")
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    (tmp_path / "config.yaml").write_text("post_hooks: []")
    call = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none"]
    more = ["--output-path", "generated_client", "--config", "config.yaml", "--fail-on-warning"]
    done = subprocess.run([*call, *more], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    monkeypatch.syspath_prepend(tmp_path)
    generated, models, create, infer = (
        importlib.import_module(f"generated_client{part}")
        for part in ("", ".models", ".api.default.put_streams_name", ".api.default.post_v2_models_pta_infer")
    )
    data = load_features(pets)
    with generated.AuthenticatedClient(base_url=server.url, token=TOKEN) as client:
        assert create.sync("garden", client=client).additional_properties["name"] == "garden"
        sample = data.samples.features[0].tolist()
        features = models.Features("features", "FP32", shape=[1, len(sample)], data=sample)
        asked = models.Inference(inputs=[features], parameters=models.InferenceParameters(stream="garden"))
        answer = infer.sync(client=client, body=asked)
        refused = infer.sync_detailed(client=client, body=models.Inference(inputs=[]))
    outputs = {output.name: output for output in answer.outputs}
    assert (answer.parameters.stream, answer.parameters.learned) == ("garden", True)
    assert outputs["label"].data[0] in data.classifier.class_names
    assert 0 < outputs["probability"].data[0] <= 1
    assert (refused.status_code, "list of one tensor" in refused.parsed.error) == (422, True)
