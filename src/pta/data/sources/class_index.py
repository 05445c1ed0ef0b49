"""Class names as people write them: `hot_dog`, `Hot dog` and `hot dog` are one class."""

from collections.abc import Mapping, Sequence

from pta.errors import InvalidParameter, nearest


def matching_name(name: str) -> str:
    """What names of one class have in common: without underscores, upper case and extra blanks. Never for texts.

    >>> matching_name("Apply_Eye_Makeup")
    'apply eye makeup'
    """
    return " ".join(name.replace("_", " ").split()).casefold()


def whole_number(text: str) -> int | None:
    """The label that a text of digits stands for.

    >>> whole_number("007"), whole_number("seven")
    (7, None)
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


class ClassIndex:
    """Finds the label of a class by its name.

    >>> ClassIndex(["hot dog", "not hot dog"]).label("Hot_Dog", "the folder")
    0
    """

    def __init__(self, class_names: Sequence[str]) -> None:
        self._labels: dict[str, list[int]] = {}
        for label, name in enumerate(class_names):
            self._labels.setdefault(matching_name(name), []).append(label)

    def __contains__(self, name: str) -> bool:
        return matching_name(name) in self._labels

    def label(self, name: str, what: str) -> int:
        """The position of a name in the list; `what` has this name, for the message if it is not there or not alone."""
        labels = self._labels.get(matching_name(name), [])
        if not labels:
            known = nearest(matching_name(name), self._labels)
            raise InvalidParameter(f"{what} {name!r} is not one of the {len(self._labels)} classes; {known}")
        if len(labels) > 1:
            raise InvalidParameter(
                f"{what} {name!r} could be any of the classes {', '.join(map(str, labels))}, which share this name; "
                "give labels as numbers in a CSV instead"
            )
        return labels[0]


def number_labels(
    labels: Mapping[str, str], class_names: Sequence[str] | None, source: str
) -> tuple[tuple[str, ...], dict[str, int]]:
    """The class names, and the number of each label of a list.

    Labels are class names, or numbers where `class_names` say what they mean. `labels` says of each where it stands,
    for messages.

    >>> number_labels({"dog": "", "cat": ""}, None, "pets.csv")
    (('cat', 'dog'), {'cat': 0, 'dog': 1})
    """
    if class_names is None:
        if all(whole_number(label) is not None for label in labels):
            raise InvalidParameter(f"{source}: the labels are numbers; give their class names (--classes FILE)")
        class_names = sorted(labels)
        return tuple(class_names), {name: number for number, name in enumerate(class_names)}
    index, numbers = ClassIndex(class_names), {}
    for label, where in labels.items():
        number = None if label in index else whole_number(label)
        if number is None:
            number = index.label(label, f"{where}the label")
        if number >= len(class_names):
            raise InvalidParameter(f"{where}label {label} does not exist; classes are 0…{len(class_names) - 1}")
        numbers[label] = number
    return tuple(class_names), numbers
