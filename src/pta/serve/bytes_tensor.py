"""Binary tensors of BYTES, as the protocol has them: the length of every element in four bytes, then the element."""

from collections.abc import Iterable


def join_elements(elements: Iterable[bytes]) -> bytes:
    """The raw tensor.

    >>> join_elements([b"cat", b""])
    b'\\x03\\x00\\x00\\x00cat\\x00\\x00\\x00\\x00'
    """
    return b"".join(part for one in elements for part in (len(one).to_bytes(4, "little"), one))


def split_elements(raw: bytes | memoryview) -> list[bytes]:
    """Its elements; ValueError where the last one is cut off.

    >>> split_elements(join_elements([b"cat", b""]))
    [b'cat', b'']
    """
    elements: list[bytes] = []
    at = 0
    while at < len(raw):
        start = at + 4
        at = start + int.from_bytes(raw[at:start], "little")
        if at > len(raw):
            raise ValueError(f"element {len(elements)} is longer than what is left")
        elements.append(bytes(raw[start:at]))
    return elements
