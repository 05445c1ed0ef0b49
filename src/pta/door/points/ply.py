"""PLY files, ascii and binary: points, or a mesh."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pta.door.points.cloud import require_few
from pta.door.points.mesh import Mesh, lines_of, points_of, polygons_of
from pta.errors import UnreadableSample, shown

_LONGEST_HEADER = 2**16
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_CODES = {  # of `struct` and numpy
    **{"char": "b", "uchar": "B", "short": "h", "ushort": "H", "int": "i", "uint": "I", "float": "f", "double": "d"},
    **{"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I"},
    **{"float32": "f", "float64": "d"},
}
_WHOLE = {name: code for name, code in _CODES.items() if code not in "fd"}
_INDICES = ("vertex_indices", "vertex_index")


@dataclass
class _Element:
    """What the header says of a kind of rows. A property has a type; a list has those of its items and its length."""

    name: str
    count: int
    properties: dict[str, tuple[str, ...]]

    def add(self, name: str, *codes: str) -> None:
        """Another property."""
        if name in self.properties:
            raise UnreadableSample(f"its {self.name} rows have two properties {shown(name)}")
        self.properties[name] = codes

    def position(self, *names: str) -> int:
        """Where the property of one of these names stands."""
        for at, name in enumerate(self.properties):
            if name in names:
                return at
        raise UnreadableSample(f"its {self.name} rows have no property {names[0]}")


def read_ply(content: bytes) -> Mesh | NDArray[np.float64]:
    """The mesh of a PLY file, or its points if it has no faces."""
    order, elements, body = _header(content)
    rows = _Binary(body, order) if order else _Ascii(body)
    points: NDArray[np.float64] | None = None
    for element in elements:
        if element.name == "vertex":
            points = rows.points(element)
        elif element.name == "face" and points is not None and element.count:
            return Mesh.of(points, rows.polygons(element))
        elif element.count:
            rows.skip(element)
    if points is None:
        raise UnreadableSample("it has no vertices")
    return points


def _header(content: bytes) -> tuple[str, list[_Element], bytes]:
    end = content.find(b"\nend_header", 0, _LONGEST_HEADER)
    start = content.find(b"\n", end + 1) + 1
    if end < 0 or start == 0:
        raise UnreadableSample("its header has no end")
    order, elements = None, list[_Element]()
    for line in content[:end].decode("ascii", "replace").splitlines():
        match line.split():
            case ["format", word, _]:
                order = _known(word, _ORDERS)
            case ["element", name, count]:
                require_few(f"{name} rows", int(count))
                if any(one.name == name for one in elements):
                    raise UnreadableSample(f"its header has two elements {shown(name)}")
                elements.append(_Element(name, max(0, int(count)), {}))
            case ["property", *_] if not elements:
                raise UnreadableSample("its header has a property before any element")
            case ["property", "list", length, item, name]:
                elements[-1].add(name, _known(item, _WHOLE if name in _INDICES else _CODES), _known(length, _WHOLE))
            case ["property", kind, name]:
                elements[-1].add(name, _known(kind, _CODES))
    if order is None:
        raise UnreadableSample("its header names no format")
    return order, elements, content[start:]


def _known(word: str, codes: Mapping[str, str]) -> str:
    if word not in codes:
        raise UnreadableSample(f"its header has {shown(word)} where it should have one of {', '.join(codes)}")
    return codes[word]


class _Ascii:
    """Rows that are lines."""

    def __init__(self, body: bytes) -> None:
        self._lines, self._at = lines_of(body), 0

    def skip(self, element: _Element) -> list[str]:
        """The lines of an element, after which the next begins."""
        start, self._at = self._at, self._at + element.count
        if self._at > len(self._lines):
            raise UnreadableSample(f"it ends before its {element.count:,} {element.name} rows do")
        return self._lines[start : self._at]

    def points(self, element: _Element) -> NDArray[np.float64]:
        return points_of(self.skip(element), [self._column(element, axis) for axis in "xyz"])

    def polygons(self, element: _Element) -> list[list[int]]:
        return polygons_of(self.skip(element), self._column(element, *_INDICES))

    @staticmethod
    def _column(element: _Element, *names: str) -> int:
        """The word of a line at which a property begins."""
        at = element.position(*names)
        if any(len(codes) > 1 for codes in islice(element.properties.values(), at)):
            raise UnreadableSample(f"its {element.name} rows have a list before {names[0]}; such text is not read")
        return at


class _Binary:
    """Rows that are bytes."""

    def __init__(self, body: bytes, order: str) -> None:
        self._body, self._order, self._at = body, order, 0

    def skip(self, element: _Element) -> NDArray[Any]:
        """The rows of an element, after which the next begins."""
        if any(len(codes) > 1 for codes in element.properties.values()):
            raise UnreadableSample(f"lists of {element.name} rows are not read")
        row = np.dtype([(name, self._order + code) for name, (code,) in element.properties.items()])
        rows = np.frombuffer(self._body, row, element.count, self._at)  # refuses to read beyond the end
        self._at += rows.nbytes
        return rows

    def points(self, element: _Element) -> NDArray[np.float64]:
        for axis in "xyz":
            element.position(axis)
        rows = self.skip(element)
        return np.stack([rows[axis].astype(np.float64) for axis in "xyz"], axis=1)

    def polygons(self, element: _Element) -> list[tuple[int, ...]]:
        wanted, polygons = element.position(*_INDICES), []
        for _ in range(element.count):
            for at, (item, *length) in enumerate(element.properties.values()):
                values = self._take(item, self._take(length[0], 1)[0] if length else 1)
                if at == wanted:
                    polygons.append(values)
        return polygons

    def _take(self, code: str, count: int) -> tuple[int, ...]:
        if count < 0:
            raise UnreadableSample(f"it has a list of {count} items")
        kind = f"{self._order}{count}{code}"
        values = struct.unpack_from(kind, self._body, self._at)
        self._at += struct.calcsize(kind)
        return values
