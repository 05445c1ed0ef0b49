"""`pta serve` in a process of its own, asked by an inference client that is not ours."""

import base64
import json

import numpy as np
import pytest
from http_serving import binary, pictures, process
from photos import encoded
from PIL import Image

from pta.data.fashion import load_fashion_test
from pta.data.features import load_features

http = pytest.importorskip("tritonclient.http")
utils = pytest.importorskip("tritonclient.utils")


class Triton:
    """The client of Triton with the token in its headers."""

    def __init__(self, server):
        self.client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
        self.headers = {"Authorization": f"Bearer {server.token}"}

    def __getattr__(self, name):
        method = getattr(self.client, name)
        return lambda *given, **more: method(*given, headers={**self.headers}, **more)  # it adds to them


@pytest.fixture(scope="module")
def server(pets, tmp_path_factory):
    with process(tmp_path_factory.mktemp("serve") / "state", "--features-only", pets) as server:
        yield server


@pytest.fixture(scope="module")
def triton(server):
    triton = Triton(server)
    yield triton
    triton.client.close()


@pytest.fixture(scope="module")
def samples(pets):
    return load_features(pets).samples.features.numpy().astype(np.float32)


def feature_input(array, *, is_binary, datatype="FP32"):
    tensor = http.InferInput("features", array.shape, datatype)
    tensor.set_data_from_numpy(array, binary_data=is_binary)
    return [tensor]


def test_health_and_metadata(triton):
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("pta")
    assert triton.is_model_ready("pta", "1")
    assert not triton.is_model_ready("other")
    assert triton.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    told = triton.get_model_metadata("pta", "1")
    assert (told["name"], told["versions"]) == ("pta", ["1"])
    assert told["inputs"] == [{"name": "features", "datatype": "FP32", "shape": [-1, 16]}]
    outputs = {one["name"]: (one["datatype"], one["shape"]) for one in told["outputs"]}
    assert outputs["label"] == ("BYTES", [-1])
    assert outputs["logits"] == ("FP32", [-1, 4])


@pytest.mark.parametrize("is_binary", [True, False])
def test_answers_are_the_same_in_binary_and_in_json(triton, samples, is_binary):
    names = "label zero_shot_label probability zero_shot_probability entropy sequence top_label top_probability logits"
    outputs = [http.InferRequestedOutput(name, binary_data=is_binary) for name in names.split()]
    given = feature_input(samples[:5], is_binary=is_binary)
    result = triton.infer("pta", given, outputs=outputs, parameters={"learn": False, "top": 3})
    labels = [label.decode() if is_binary else label for label in result.as_numpy("label")]
    logits = result.as_numpy("logits")
    assert [("cat", "dog", "newt", "owl")[best] for best in logits.argmax(1)] == labels
    assert logits.shape == (5, 4)
    assert result.as_numpy("top_label").shape == result.as_numpy("top_probability").shape == (5, 3)
    np.testing.assert_allclose(result.as_numpy("top_probability")[:, 0], result.as_numpy("probability"), rtol=1e-6)
    assert result.as_numpy("sequence").tolist() == [-1] * 5
    assert result.get_response()["parameters"] == {"stream": "default", "learned": False, "repeated": False}


def test_without_a_list_of_outputs_all_usual_ones_come_in_binary(triton, samples):
    result = triton.infer("pta", feature_input(samples[:2], is_binary=True), model_version="1")
    assert [one["name"] for one in result.get_response()["outputs"]] == [
        *("label", "zero_shot_label", "adapted_label", "probability"),
        *("zero_shot_probability", "entropy", "sequence"),
    ]
    assert result.as_numpy("label").dtype == np.object_
    assert result.get_response()["parameters"]["learned"]
    assert result.get_response()["id"]  # made by the service


def test_half_precision_is_learned_as_it_is(triton, samples):
    halves = samples[:2].astype(np.float16)
    by = [
        triton.infer("pta", feature_input(array, is_binary=True, datatype=name), parameters={"learn": False})
        for array, name in ((halves, "FP16"), (halves.astype(np.float32), "FP32"))
    ]
    np.testing.assert_array_equal(*(result.as_numpy("probability") for result in by))


def test_an_id_is_answered_once(triton, samples):
    first, again = (triton.infer("pta", feature_input(samples[7:9], is_binary=True), request_id="7") for _ in range(2))
    assert [one.get_response()["parameters"]["repeated"] for one in (first, again)] == [False, True]
    assert first.get_response()["id"] == again.get_response()["id"] == "7"
    for name in ("label", "sequence", "probability"):
        np.testing.assert_array_equal(first.as_numpy(name), again.as_numpy(name))
    with pytest.raises(utils.InferenceServerException) as error:
        triton.infer("pta", feature_input(samples[9:10], is_binary=True), request_id="7")
    assert error.value.status() == "409"


def test_errors_are_told_in_words(triton, samples):
    for given, more, said in (
        (samples[:1, :3], {}, "shape B×16"),
        (samples[:1] * np.nan, {}, "NaN"),
        (samples[:1], {"parameters": {"stream": "nobody"}}, "nobody"),
    ):
        with pytest.raises(utils.InferenceServerException, match=said):
            triton.infer("pta", feature_input(np.ascontiguousarray(given), is_binary=True), **more)
    with pytest.raises(utils.InferenceServerException, match="Not Found"):
        triton.get_model_metadata("other")
    with pytest.raises(utils.InferenceServerException, match="a token is needed"):
        triton.client.get_server_metadata()


def test_priority_and_timeout_change_nothing(triton, samples):
    given = feature_input(samples[10:11], is_binary=True)
    plain, hurried = (
        triton.infer("pta", given, parameters={"learn": False}, **more) for more in ({}, {"priority": 1, "timeout": 5})
    )
    np.testing.assert_array_equal(plain.as_numpy("probability"), hurried.as_numpy("probability"))


@pytest.mark.parametrize("sequence", [7, "seven"])
def test_a_sequence_is_refused_with_a_hint_at_streams(triton, samples, sequence):
    given = feature_input(samples[:1], is_binary=True)
    with pytest.raises(utils.InferenceServerException, match=r"sequence_id .* parameter stream instead") as error:
        triton.infer("pta", given, sequence_id=sequence, sequence_start=True)
    assert error.value.status() == "422"


@pytest.mark.parametrize("name", ["sequence_start", "sequence_end"])
def test_the_ends_of_a_sequence_alone_are_refused_likewise(server, samples, name):
    answer = server.infer(*binary(samples[:1]), parameters={name: True})
    assert answer.status == 422
    assert f"{name} is not supported; name a stream with the parameter stream instead" in answer.body.decode()


def test_a_second_process_cannot_have_the_data_folder(server, pets, pta):
    refused = pta("serve", "--features-only", pets, "--data", server.folder, "--port", "0")
    assert refused.returncode == 2
    assert str(server.process.pid) in refused.stderr


def test_only_the_owner_can_read_the_token(server):
    file = server.folder / "token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().strip() == server.token
    assert server.token not in server.log.read_text()


# -- pictures -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clothing():
    return load_fashion_test()


@pytest.fixture(scope="module")
def viewer(clothing, tmp_path_factory):
    """A service with the embedded model."""
    options = ("--model", "embedded", "--classes", ",".join(clothing.class_names), "--max-pixels", "250000")
    with process(tmp_path_factory.mktemp("serve") / "state", *options, "--name", "clothes") as server:
        yield server


@pytest.mark.parametrize("is_binary", [True, False])
def test_pictures_are_classified(viewer, clothing, is_binary):
    files = [encoded(Image.fromarray(image), "PNG") for image in clothing.images[:3]]
    given = files if is_binary else [base64.b64encode(one) for one in files]
    tensor = http.InferInput("image", [3], "BYTES")
    tensor.set_data_from_numpy(np.array(given, dtype=object), binary_data=is_binary)
    result = Triton(viewer).infer("clothes", [tensor], parameters={"learn": False})
    assert [label.decode() for label in result.as_numpy("label")] == ["ankle boot", "pullover", "trouser"]


def bad_pictures(image):
    still, other = Image.fromarray(image), Image.fromarray(255 - image)
    jpeg = encoded(still.convert("RGB").resize((200, 200)), "JPEG")
    return {
        "no image": b"<svg/>",
        "truncated": jpeg[: len(jpeg) // 2],
        "too many": encoded(Image.new("L", (600, 600)), "PNG"),
        "animated": encoded(still, "GIF", save_all=True, append_images=[other]),
        "animated PNG": encoded(still, "PNG", save_all=True, append_images=[other]),
        "animated WebP": encoded(still.convert("RGB"), "WEBP", save_all=True, append_images=[other.convert("RGB")]),
        "address": b"https://example.org/cat.jpg",
        "empty": b"",
    }


def test_bad_pictures_are_named_and_change_nothing(viewer, clothing):
    before = viewer.state()
    good = encoded(Image.fromarray(clothing.images[0]), "PNG")
    for what, content in bad_pictures(clothing.images[0]).items():
        answer = viewer.infer(*pictures(good, content), path="/v2/models/clothes/infer")
        assert answer.status == 422, (what, answer.body)
        assert "image[1]" in json.loads(answer.body)["error"], what
    assert viewer.state() == before


def test_a_service_with_a_model_takes_features_as_well(viewer):
    dim = next(one for one in Triton(viewer).get_model_metadata("clothes")["inputs"] if one["name"] == "features")[
        "shape"
    ][1]
    answer = viewer.infer(*binary(np.ones((1, dim))), path="/v2/models/clothes/infer")
    assert answer.status == 200
