"""The description in a pickle, without building any object.

A pickle is a program for a small stack machine, and Python's own machine imports and calls whatever the program names.
This one imports nothing and calls nothing. Strings, integers, tuples and dicts with string keys become themselves, an
object becomes an `Inert`, and everything else becomes None.
"""

from dataclasses import dataclass
from itertools import islice
from pickletools import genops, opcodes
from typing import Any

from pta.errors import UnreadableFile

MOST_STEPS = 1_000_000
"""Enough for 30,000 tensors; CLIP models have some hundreds, and three times as many while they are trained."""

PERSISTENT = "persistent id"
"""The name of what lies outside the pickle; its argument says where."""

_LONGEST_NAME = 200  # of a module or class; one long string could be used in any number of names


@dataclass(slots=True, eq=False, repr=False)
class Inert:
    """An object that was not built: the class or function that the pickle names, its arguments and its state."""

    name: str  # "module name", as pickles have it; empty if the pickle calls something that has no name
    arguments: tuple[Any, ...] = ()
    state: Any = None


def read_pickle(content: bytes) -> Any:
    """What a pickle of any protocol describes; work and memory are bounded by its length and `MOST_STEPS`."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    for opcode, argument, _ in islice(genops(content), MOST_STEPS):
        match opcode.name:
            case "STOP":
                return stack.pop()
            case "MARK":
                marks.append(len(stack))
            case "DUP":
                stack.append(stack[-1])
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case name:
                taken = _take(name, stack, marks)
                if opcode.stack_after:
                    stack.append(_result(name, argument, taken))
    raise UnreadableFile(f"its pickle takes more than {MOST_STEPS:,} steps")


# What an opcode takes from the stack: how many values, and whether also all that lies above the last mark.
_TAKES = {
    opcode.name: (kinds.index("mark"), True) if "mark" in kinds else (len(kinds), False)
    for opcode in opcodes
    for kinds in [[kind.name for kind in opcode.stack_before]]
}
_PLAIN_KINDS = {"int", "int_or_bool", "str", "bytes_or_str"}
_PLAIN = {opcode.name for opcode in opcodes if {kind.name for kind in opcode.stack_after} & _PLAIN_KINDS}


def _take(name: str, stack: list[Any], marks: list[int]) -> list[Any]:
    count, marked = _TAKES[name]
    start = (marks.pop() if marked else len(stack)) - count
    if start < 0:
        raise UnreadableFile("its pickle takes more from the stack than is there")
    taken = stack[start:]
    del stack[start:]
    return taken


def _result(name: str, argument: Any, taken: list[Any]) -> Any:
    match name:
        case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
            return tuple(taken)
        case "EMPTY_DICT" | "DICT":
            return _set_items({}, taken)
        case "SETITEM" | "SETITEMS":
            return _set_items(taken[0], taken[1:])
        case "GLOBAL":
            return Inert(argument)
        case "STACK_GLOBAL":
            return Inert(" ".join(part[:_LONGEST_NAME] for part in taken if isinstance(part, str)))
        case "REDUCE" | "NEWOBJ":
            return _call(*taken)
        case "BUILD":
            return _set_state(*taken)
        case "BINPERSID":
            return Inert(PERSISTENT, tuple(taken))
    return argument if name in _PLAIN else None


def _set_items(container: Any, items: list[Any]) -> Any:
    if isinstance(container, dict):
        pairs = zip(items[::2], items[1::2], strict=False)
        container.update((key, value) for key, value in pairs if isinstance(key, str))
    return container


def _call(function: Any, arguments: Any) -> Any:
    name = function.name if isinstance(function, Inert) else ""
    given = arguments if isinstance(arguments, tuple) else ()
    return {} if name == "collections OrderedDict" and not given else Inert(name, given)


def _set_state(subject: Any, state: Any) -> Any:
    if isinstance(subject, Inert):
        subject.state = state
    return subject
