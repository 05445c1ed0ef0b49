"""Connections: how many there may be, and which of them makes room for a new one."""

from collections.abc import Iterator
from itertools import chain
from typing import Protocol


class Connection(Protocol):
    """What the limit has to know of a connection."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing that somebody with a token asked for is on its way."""

    def hang_up(self) -> None:
        """End it at once."""


class Connections:
    """At the limit, the one that has waited longest without an authorised request goes in favour of a new one.

    Strangers, who have never had one, go first as soon as they are half of all: whoever opens many connections does
    not end those of others. Fewer of them stay, so that they have the time to say who they are.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._strangers: dict[Connection, None] = {}  # who waits without an authorised request, longest first
        self._known: dict[Connection, None] = {}  # who waits after one

    def admit(self, new: Connection) -> bool:
        """Whether there is room for a new one, or somebody who makes room."""
        if len(self._open) >= self._most:
            oldest = next(self._idle(), None)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.hang_up()
        self._open.add(new)
        self._strangers[new] = None
        return True

    def begin(self, connection: Connection) -> None:
        """It has an authorised request."""
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)

    def end(self, connection: Connection) -> None:
        """Its authorised request is answered."""
        if connection in self._open:
            self._known[connection] = None

    def remove(self, connection: Connection) -> None:
        """It is closed."""
        self._open.discard(connection)
        self.begin(connection)

    def _idle(self) -> Iterator[Connection]:
        are_many = 2 * len(self._strangers) >= self._most
        waiting = chain(self._strangers, self._known) if are_many else chain(self._known, self._strangers)
        return (connection for connection in waiting if connection.is_idle)
