"""A call that is waited for only so long: /proc, the kubelet and the driver can all hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import TypeVar

T = TypeVar("T")


class Bounded:
    """Runs calls on threads of their own; at most `most` of them, those that hang included."""

    def __init__(self, most: int = 16) -> None:
        self._free = threading.BoundedSemaphore(most)

    def call(self, work: Callable[[], T], timeout_s: float) -> T:
        """What `work` gives, or raises.

        Raises:
            futures.TimeoutError: it took too long, and goes on unheeded; or so many hang that no more are begun.
        """
        if not self._free.acquire(timeout=timeout_s):
            raise futures.TimeoutError
        future: futures.Future[T] = futures.Future()

        def run() -> None:
            try:
                found = work()
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                future.set_result(found)
            finally:
                self._free.release()

        threading.Thread(target=run, name="spanlite-identity", daemon=True).start()
        return future.result(timeout_s)
