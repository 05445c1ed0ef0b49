"""`make mutants` makes the changes it says it makes, and the list of those that make no difference is up to date."""

import pytest
from mutants import __main__ as command
from mutants.covering import FILES
from mutants.mutations import mutations

SOURCE = '''
from x import y
@cache
def f(a: int | None, b=1):
    """Text."""
    if a:
        raise ValueError(f"{a + b} is wrong")
    a.b = y(a, b) + 2.0
    a.c += not b and a < b
    return {"text": True, "ü": -a}
'''


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("comparison", "a < b", "(a <= b)"),
        ("arithmetic", "y(a, b) + 2.0", "(y(a, b) - 2.0)"),
        ("arithmetic", "a.c +=", "a.c -="),
        ("arithmetic", '"ü": -a', '"ü": (a)'),
        ("boolean", "not b and a < b", "(not b or a < b)"),
        ("not", "not b", "(b)"),
        ("not", "if a:", "if (not a):"),
        ("constant", "b=1", "b=(2)"),
        ("constant", "b=1", "b=(0)"),
        ("constant", "2.0", "(3.0)"),
        ("constant", "True", "(False)"),
        ("arguments swapped", "y(a, b)", "(y(b, a))"),
        ("return value", 'return {"text": True, "ü": -a}', "return None"),
        ("statement removed", 'raise ValueError(f"{a + b} is wrong")', "pass"),
        ("statement removed", "a.b = y(a, b) + 2.0", "pass"),
        ("statement removed", "a.c += not b and a < b", "pass"),
    ],
)
def test_a_change_of_every_kind_is_made(kind, before, after):
    changed = SOURCE.replace(before, after)
    (found,) = [change for change in mutations(SOURCE) if change.text == changed]
    assert found.kind == kind
    assert found.function == "f"


def test_annotations_decorators_and_texts_are_left_alone_and_every_change_can_be_compiled():
    for change in mutations(SOURCE):
        compile(change.text, "changed", "exec")
        assert change.text != SOURCE
        for untouched in ("@cache", "a: int | None", '"""Text."""', '"text"'):
            assert untouched in change.text or change.kind == "return value"


def test_what_is_drawn_depends_on_the_seed_and_fewer_are_the_first_of_more():
    files = command.core_files()[:3]
    few, more, others = (command.drawn(count, seed, files) for count, seed in ((3, 1), (6, 1), (6, 2)))
    assert few == more[:3]
    assert more != others


def test_every_listed_change_exists_and_says_why_it_makes_no_difference():
    listed = command.equivalents()
    known = {command.key_of(row) for file in command.core_files() for row, _ in command.changes(file)}
    assert [row for row in listed if command.key_of(row) not in known] == []
    assert all(row["reason"] for row in listed)


def test_every_test_file_that_mutants_are_run_against_exists():
    assert [name for name in FILES if not (command.ROOT / f"tests/test_{name}.py").is_file()] == []
