"""Bodies of the Open Inference Protocol: what is read of them, what is refused, and how answers are written."""

import base64
import json
import math
import re

import numpy as np
import pytest
from http_serving import binary, features, pictures
from hypothesis import given
from hypothesis import strategies as st

from pta.serve.http.protocol import metadata, read_request, write_reply
from pta.serve.requests import OUTPUTS, Refused, Result, read_result
from pta.serve.streams.served_model import Shape

SHAPE = Shape(dim=3, class_names=("cat", "dog"), name="pta", method="pta", takes_pictures=True, batch=4, durable=True)
ROWS = np.array([[1, 2, 3], [4, 5, 6.5]])


def read(tensor, raw=b"", shape=SHAPE, **more):
    head = json.dumps({"inputs": [tensor], **more}).encode()
    return read_request(head + raw, str(len(head)).encode() if raw else None, shape)


def refused(body, length=None, shape=SHAPE):
    with pytest.raises(Refused) as error:
        read_request(body, length, shape)
    assert error.value.status == 422
    return str(error.value)


def answer(**more):
    given = {"id": "a", "stream": "default", "learned": True, "repeated": False, "reason": None}
    given |= {name: more.pop(name) for name in given if name in more}
    outputs = {"label": np.array(["cat", "dög"], object), "zero_shot_label": np.array(["dog", "dog"], object)}
    numbers = ("probability", "zero_shot_probability", "entropy")
    outputs |= {"adapted_label": outputs["label"], **dict.fromkeys(numbers, np.array([0.5, 0.25], np.float32))}
    return Result(
        **given, outputs={**outputs, "sequence": np.array([7, 8]), "rejected": np.array([True, False]), **more}
    )


def test_features_are_the_same_in_json_nested_or_flat_and_in_binary():
    nested = {**features(ROWS), "data": ROWS.tolist()}
    asked = [read(*one)[0] for one in ((features(ROWS),), (nested,), binary(ROWS), binary(ROWS, "FP16"))]
    for one in asked:
        np.testing.assert_array_equal(one.features, ROWS)
        assert one.features.dtype == np.float32
        assert (one.stream, one.learn, one.source, one.top, one.logits, one.id) == (
            "default",
            "try",
            None,
            0,
            False,
            None,
        )
    assert len({one.digest for one in asked}) == 1


def test_pictures_are_the_same_in_base64_and_in_binary():
    text = {"name": "image", "datatype": "BYTES", "shape": [2]}
    text["data"] = [base64.b64encode(one).decode() for one in (b"GIF8", b"")]
    for asked in (read(text)[0], read(*pictures(b"GIF8", b""))[0]):
        assert asked.pictures == (b"GIF8", b"")


def test_the_digest_tells_what_a_request_asks_to_learn():
    asked = [
        read(features(rows), parameters=parameters)[0].digest
        for rows in (ROWS, ROWS[::-1])
        for parameters in ({}, {"learn": True}, {"source": "a"}, {"source": "b"})
    ]
    assert len(set(asked)) == len(asked) == 8
    assert read(features(ROWS), parameters={"top": 2})[0].digest == asked[0]
    assert read(*pictures(b"ab", b"c"))[0].digest != read(*pictures(b"a", b"bc"))[0].digest


@pytest.mark.parametrize(("given", "read_as"), [("", None), (None, None), ("a\nb", "a\nb"), ("ü" * 64, "ü" * 64)])
def test_an_id_is_any_text(given, read_as):
    assert read(features(ROWS), id=given)[0].id == read_as


def test_parameters_reach_the_service():
    parameters = {"stream": "door", "learn": False, "source": "cam 1", "top": 2}
    asked, wanted = read(
        features(ROWS), parameters=parameters, id="x", outputs=[{"name": "logits"}, {"name": "top_label"}]
    )
    assert (asked.stream, asked.learn, asked.source, asked.top, asked.logits, asked.id) == (
        *("door", "false", "cam 1"),
        *(2, True, "x"),
    )
    assert wanted == {"logits": False, "top_label": False}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": [math.nan] * 6}, "not JSON"),
        ({"data": [1e39] * 6}, "NaN, Inf or too large"),
        ({"data": [0, 0, 0, 1, 1, 1]}, r"features\[0\] has no length"),
        ({"data": [1] * 5}, "2×3 numbers"),
        ({"data": [[1, 2, 3], [1, 2]]}, "every row"),
        ({"data": [1, 2, 3, 4, 5, "6"]}, "nothing but numbers"),
        ({"data": [1, 2, 3, 4, 5, None]}, "nothing but numbers"),
        ({"data": [1, 2, 3, 4, 5, True]}, "nothing but numbers"),
        ({"data": [1, 2, 3, 4, 5, [6]]}, "nothing but numbers"),
        ({"data": "123456"}, "2×3 numbers"),
        ({"data": None}, "2×3 numbers"),
        ({"datatype": "FP16"}, "FP16 as a binary input"),
        ({"datatype": "INT64"}, "must be FP32"),
        ({"datatype": ["FP32"]}, "must be FP32"),
        ({"shape": [2, 4]}, "shape B×3"),
        ({"shape": [6]}, "shape B×3"),
        ({"shape": [2.0, 3]}, "shape B×3"),
        ({"shape": [True, 3]}, "shape B×3"),
        ({"shape": [-1, 3]}, "1 to 4 samples"),
        ({"shape": [0, 3], "data": []}, "1 to 4 samples"),
        ({"shape": [5, 3]}, "1 to 4 samples"),
        ({"shape": [10**30, 3]}, "shape B×3|not JSON"),
        ({"name": "feature"}, "no input is called"),
        ({"name": None}, "no input is called"),
        ({"parameters": {"binary_data_size": 0}}, "binary_data_size is 0"),
        ({"parameters": {"binary_data_size": -24}}, "binary_data_size is -24"),
        ({"parameters": []}, "must be an object"),
    ],
)
def test_an_input_that_is_not_what_it_should_be_is_refused(change, said):
    body = json.dumps({"inputs": [{**features(ROWS), **change}]}).encode()
    message = refused(body)
    assert re.search(said, message), message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputs": []}, "a list of one tensor"),
        ({"inputs": [features(ROWS)] * 2}, "a list of one tensor"),
        ({"inputs": [3]}, "must be an object"),
        ({"parameters": {"lern": False}}, "did you mean 'learn'"),
        ({"parameters": {"learn": "no"}}, "learn must be"),
        ({"parameters": {"learn": 1}}, "learn must be"),
        ({"parameters": {"top": 3}}, "from 1 to 2"),
        ({"parameters": {"top": 0}}, "from 1 to 2"),
        ({"parameters": {"top": True}}, "from 1 to 2"),
        ({"parameters": {"source": ""}}, "1 to 128 printable bytes"),
        ({"parameters": {"source": "a\nb"}}, "1 to 128 printable bytes"),
        ({"parameters": {"source": "ü" * 65}}, "1 to 128 printable bytes"),
        ({"parameters": {"stream": 5}}, "stream must be"),
        ({"parameters": {"binary_data_output": 1}}, "true or false"),
        ({"parameters": 7}, "must be an object"),
        ({"id": 5}, "id must be"),
        ({"id": 0}, "id must be"),
        ({"id": []}, "id must be"),
        ({"id": "x" * 129}, "at most 128 bytes"),
        ({"outputs": {}}, "must be a list"),
        ({"outputs": [{"name": "labels"}]}, "did you mean 'label'"),
        ({"outputs": [{"name": "label", "parameters": {"binary_data": "yes"}}]}, "true or false"),
        ({"output": []}, "did you mean 'outputs'"),
    ],
)
def test_a_request_that_is_not_what_it_should_be_is_refused(change, said):
    assert said in refused(json.dumps({"inputs": [features(ROWS)], **change}).encode())


def test_binary_sizes_must_add_up():
    tensor, raw = binary(ROWS)
    for size, body in ((24, raw[:-1]), (24, raw + b"x"), (23, raw[:-1]), (-1, raw), (10**40, raw), ("24", raw)):
        head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": size}}]}).encode()
        refused(head + body, str(len(head)).encode())
    head = json.dumps({"inputs": [tensor]}).encode()
    for length in (b"-1", b"x", b"", b"1e3", str(len(head + raw) + 1).encode(), b"9" * 30, b"5"):
        refused(head + raw, length)
    without_size = json.dumps({"inputs": [features(ROWS)]}).encode()
    assert "no binary_data_size" in refused(without_size + raw, b"%d" % len(without_size))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e30])
def test_binary_features_are_checked_as_well(number):
    tensor, raw = binary([[1, number, 2]])
    head = json.dumps({"inputs": [tensor]}).encode()
    assert "features[0] has NaN, Inf or too large numbers" in refused(head + raw, b"%d" % len(head))


def test_elements_that_are_longer_than_the_body_are_refused():
    tensor, _ = pictures(b"abcd")
    head = json.dumps({"inputs": [tensor]}).encode()
    for raw in (b"\xff\xff\xff\xff1234", b"\5\0\0\0abcd", b"\3\0\0\0abcd"):
        refused(head + raw, b"%d" % len(head))


@pytest.mark.parametrize("address", ["http://example.org/cat.jpg", "file:///etc/passwd", "data:image/png;base64,AAAA"])
def test_an_address_is_not_fetched(address):
    text = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [address]}
    assert "nothing is fetched" in refused(json.dumps({"inputs": [text]}).encode())
    tensor, raw = pictures(address.encode())
    head = json.dumps({"inputs": [tensor]}).encode()
    assert "image[0] is an address" in refused(head + raw, b"%d" % len(head))


def test_a_service_without_a_model_says_so():
    shape = Shape(3, ("cat", "dog"), "pta", "pta", takes_pictures=False, batch=4, durable=True)
    tensor, raw = pictures(b"GIF8")
    head = json.dumps({"inputs": [tensor]}).encode()
    assert "no model for pictures" in refused(head + raw, b"%d" % len(head), shape)
    assert [one["name"] for one in metadata(shape)["inputs"]] == ["features"]


@pytest.mark.parametrize("body", [b"", b"[" * 100_000, b'{"inputs":' * 5000, b"nul", b"\xff\xfe", b"[]", b'"x"', b"{}"])
def test_what_is_no_request_is_refused(body):
    refused(body)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=4))
def test_any_bytes_are_read_or_refused(body, length):
    with pytest.raises(Refused):
        read_request(body, length, SHAPE)


@pytest.mark.parametrize("is_binary", [True, False])
def test_an_answer_is_read_as_it_was_written(is_binary):
    more = {
        "top_label": np.array([["cat", "dog"], ["dog", "cat"]], object),
        "top_probability": np.array([[0.9, 0.1], [0.8, 0.2]]),
    }
    reply = answer(**more, logits=np.array([[1.0, 2.0], [3.0, 4.0]]), reason="frozen", learned=False)
    outputs = [{"name": name, "parameters": {"binary_data": is_binary}} for name in OUTPUTS]
    _, wanted = read(features(ROWS), outputs=outputs)
    content, length = write_reply(reply, wanted, "pta")
    assert (length is None) != is_binary
    result = read_result(content, length)
    assert result.outputs.keys() == OUTPUTS.keys()
    assert (result.labels, result.reason, result.learned) == (reply.labels, "frozen", False)
    assert result.outputs["top_label"].tolist() == more["top_label"].tolist()
    np.testing.assert_array_equal(result.outputs["sequence"], reply.outputs["sequence"])
    assert result.outputs["rejected"].tolist() == [True, False]
    np.testing.assert_array_equal(result.outputs["logits"], reply.outputs["logits"])
    np.testing.assert_array_equal(result.outputs["top_probability"], more["top_probability"].astype(np.float32))


def test_a_repeated_answer_lacks_what_is_not_stored():
    _, wanted = read(features(ROWS), outputs=[{"name": "label"}, {"name": "logits"}, {"name": "top_label"}])
    content, _ = write_reply(answer(repeated=True), wanted, "pta")
    assert [one["name"] for one in json.loads(content)["outputs"]] == ["label"]
