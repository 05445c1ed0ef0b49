"""Whose answers are given: adaptation's or zero-shot's, and what the other says beside them."""

import numpy as np
import pytest
from serving import CLASSIFIER, ask, open_service, same_bits, state_of

from pta.serve.requests import USUAL_OUTPUTS


def shadow(service, answers="zero-shot"):
    return service.operate("default", "answers", answers=answers)


def learned(service, *, count=40):
    for seed in range(count):
        ask(service, seed, count=3)


def column(reply, name):
    return reply.outputs[name].tolist()


@pytest.fixture
def service(tmp_path):
    with open_service(tmp_path) as service:
        learned(service)
        yield service


def test_zero_shot_answers_and_adaptation_stands_beside_them(service):
    usual = ask(service, 7, count=200, learn="false", top=3, logits=True)
    assert column(usual, "adapted_label") == usual.labels
    shadow(service)
    given = ask(service, 7, count=200, learn="false", top=3, logits=True)
    for name in ("label", "probability"):
        assert column(given, name) == column(usual, f"zero_shot_{name}")
    assert column(given, "adapted_label") == usual.labels
    assert [row[0] for row in given.outputs["top_label"]] == given.labels
    assert CLASSIFIER.class_names[int(given.outputs["logits"][0].argmax())] == given.labels[0]
    np.testing.assert_allclose(given.outputs["top_probability"][:, 0], given.outputs["probability"], rtol=1e-5)
    assert column(given, "entropy") != column(usual, "entropy")
    shadow(service, "adapted")
    assert column(ask(service, 7, count=200, learn="false"), "probability") == column(usual, "probability")


def test_learning_goes_on_and_is_the_same(tmp_path):
    states = []
    for answers in ("adapted", "zero-shot"):
        with open_service(tmp_path / answers) as service:
            shadow(service, answers)
            learned(service)
            states.append(state_of(service))
    assert same_bits(*states)


def test_it_is_shown_and_lifted_by_neither_undo_nor_rewind(service):
    shadow(service)
    service.operate("default", "reset")
    service.operate("default", "undo")
    service.operate("default", "rewind", sequence=3)
    assert service.summary("default")["answers"] == "zero-shot"
    assert service.streams()[0]["answers"] == "zero-shot"


@pytest.mark.parametrize("are_written", [True, False])
def test_an_id_gets_its_first_answer_again_across_a_switch_and_a_restart(tmp_path, are_written):
    first = {}
    with open_service(tmp_path, reject_below=0.9) as service:
        learned(service)
        for id, answers in (("a", "adapted"), ("b", "zero-shot"), ("c", "zero-shot"), ("d", "adapted")):
            shadow(service, answers)
            first[id] = ask(service, 500, id=id, count=5)
        for id, reply in first.items():
            require_repeated(service, id, reply)
    with open_service(tmp_path, reject_below=0.9) as service:
        if not are_written:
            with service._journal._database.writing, service._journal._database.transaction() as connection:
                connection.execute("UPDATE batches SET answers = NULL")
        for id, reply in first.items():
            require_repeated(service, id, reply)
    assert column(first["a"], "probability") != column(first["b"], "probability")


def require_repeated(service, id, reply):
    again = ask(service, 500, id=id, count=5)
    assert again.repeated
    for name in USUAL_OUTPUTS:
        assert column(again, name) == column(reply, name), (id, name)


def test_it_needs_no_journal():
    with open_service(None) as service:
        shadow(service)
        reply = ask(service, 1)
        assert reply.labels == column(reply, "zero_shot_label")
