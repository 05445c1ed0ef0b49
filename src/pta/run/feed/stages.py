"""A pipeline of two stages for batches."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Batch = TypeVar("Batch")
Decoded = TypeVar("Decoded")
Begun = TypeVar("Begun")


def in_stages(
    batches: Iterable[Batch], decode: Callable[[Batch], Decoded], begin: Callable[[Decoded], Begun], ahead: int
) -> Iterator[Begun]:
    """`begin(decode(batch))` for batch after batch, in order.

    A thread decodes so many batches ahead of what is begun, and that is begun so many ahead of what is given out. An
    error of the source comes after all that was before it.
    """
    if not ahead:
        yield from map(begin, map(decode, batches))
        return
    decoding: deque[Future[Decoded]] = deque()
    begun: deque[Begun] = deque()
    failure = None
    with ThreadPoolExecutor(1, "decode") as pool:
        source = iter(batches)
        while failure is None:
            try:
                decoding.append(pool.submit(decode, next(source)))
            except Exception as error:  # noqa: BLE001 (raised below, after all that was before it)
                failure = error
            if decoding and (failure or len(decoding) > ahead):
                begun.append(begin(decoding.popleft().result()))
            if begun and (failure or len(begun) > ahead):
                yield begun.popleft()
        while decoding or begun:
            if decoding:
                begun.append(begin(decoding.popleft().result()))
            yield begun.popleft()
    if not isinstance(failure, StopIteration):
        raise failure
