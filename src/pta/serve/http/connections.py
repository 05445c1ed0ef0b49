"""Connections: how many there may be, and which one is closed in favour of a new one."""

from collections.abc import Iterator
from itertools import chain
from typing import Protocol


class Connection(Protocol):
    """What the limit has to know of a connection."""

    @property
    def is_idle(self) -> bool:
        """Whether no request with a token is being answered on it."""

    def hang_up(self) -> None:
        """End it at once."""


class Connections:
    """At the limit, the one that has waited longest without an authorised request is closed in favour of a new one.

    Connections that never had one are closed first as soon as they are half of all: a client without a token that opens
    many does not end those of others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # without an authorised request, longest first
        self._strangers: dict[Connection, None] = {}  # of these, the ones that never had one

    def admit(self, new: Connection) -> bool:
        """Whether there is room for a new one, also by closing an idle one."""
        if len(self._open) >= self._most:
            oldest = next(self._idle(), None)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.hang_up()
        self._open.add(new)
        self._waiting[new] = self._strangers[new] = None
        return True

    def begin(self, connection: Connection) -> None:
        """It has an authorised request."""
        self._waiting.pop(connection, None)
        self._strangers.pop(connection, None)

    def end(self, connection: Connection) -> None:
        """Its authorised request is answered."""
        if connection in self._open:
            self._waiting[connection] = None

    def remove(self, connection: Connection) -> None:
        """It is closed."""
        self._open.discard(connection)
        self.begin(connection)

    def _idle(self) -> Iterator[Connection]:
        first = self._strangers if 2 * len(self._strangers) >= self._most else self._waiting
        return (connection for connection in chain(first, self._waiting) if connection.is_idle)
