"""Refused: a request that the service does not carry out, with the HTTP status that says why."""

from pta.errors import PtaError


class Refused(PtaError):
    """The request changed nothing; the message says what to do.

    >>> refused = Refused(429, "the queue is full", retry_after=1)
    >>> refused.status, str(refused), refused.retry_after
    (429, 'the queue is full', 1)
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
