"""Refused: a request that the service does not carry out, with the HTTP status that says why."""

from pta.errors import MachineFailure, UserMistake


class Refused(UserMistake):
    """The request changed nothing; the message says what to do. A status of 500 or above is a failure of the service.

    >>> refused = Refused(429, "the queue is full", retry_after=1)
    >>> refused.status, str(refused), refused.retry_after
    (429, 'the queue is full', 1)
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.exit_code = (UserMistake if status < 500 else MachineFailure).exit_code
