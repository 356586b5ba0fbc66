"""Reading ahead in a thread of its own, so that whoever waits for due times finds things done."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

_Thing = TypeVar("_Thing")
_WAIT_S = 0.1


class ReadAhead(Generic[_Thing]):
    """Things made by another thread, as a context to iterate over once.

    At most `most` of them wait, one more is being made. What is raised over there is raised here when all things before
    it have been taken. Leaving the context ends the thread after the thing at hand.
    """

    def __init__(self, things: Iterator[_Thing], *, most: int) -> None:
        self._things = things
        self._made: queue.Queue[tuple[_Thing] | BaseException | None] = queue.Queue(most)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._make, name="spanlite-replay-reader", daemon=True)

    def __enter__(self) -> Iterator[_Thing]:
        self._thread.start()
        return self._taken()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def full(self) -> bool:
        """Whether no more things are being made: as many wait as may, or there are no more."""
        return self._made.full() or not self._thread.is_alive()

    def _taken(self) -> Iterator[_Thing]:
        while (entry := self._made.get()) is not None:
            if isinstance(entry, BaseException):
                raise entry
            yield entry[0]

    def _make(self) -> None:
        try:
            for thing in self._things:
                self._put((thing,))
                if self._ended.is_set():
                    return
        except BaseException as error:  # noqa: BLE001  # it is raised where the things are taken
            self._put(error)
        else:
            self._put(None)

    def _put(self, entry: tuple[_Thing] | BaseException | None) -> None:
        """Waits for room, unless nobody takes things any more."""
        while not self._ended.is_set() and not self._try(entry):
            pass

    def _try(self, entry: tuple[_Thing] | BaseException | None) -> bool:
        try:
            self._made.put(entry, timeout=_WAIT_S)
        except queue.Full:
            return False
        return True
