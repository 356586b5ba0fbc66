"""A source of identities that may be missing: what it said last is kept, and how it stands is known."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from spanlite.runtime.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")


class Unavailable(Exception):  # noqa: N818  # a state, which callers export, more than an error
    """A source that cannot be asked.

    Attributes:
        state: one word of a bounded set, fit for a metric label.
    """

    def __init__(self, state: str, why: str) -> None:
        super().__init__(why)
        self.state = state


class Source(Generic[T]):
    """Asks at most once in `fresh_s`, also when that fails; any thread may call, and waits while another asks.

    A source that fails gives no answer, not an old one: a GPU may have gone to another pod meanwhile.
    """

    def __init__(self, name: str, ask: Callable[[], T], clock: Clock, *, fresh_s: float) -> None:
        self.name = name
        self.state = "not_asked"
        """ok, not_asked, or why the last question failed."""
        self._ask = ask
        self._clock = clock
        self._fresh_ns = round(fresh_s * 1e9)
        self._lock = threading.Lock()
        self._answer: T | None = None
        self._asked_ns: int | None = None

    def get(self, enough: Callable[[T], bool] = lambda _: False) -> T | None:
        """An answer, at most `fresh_s` old or one that is `enough` at any age; None where there is none."""
        with self._lock:
            if self._answer is not None and enough(self._answer):
                return self._answer
            now_ns = self._clock.monotonic_ns()
            if self._asked_ns is None or now_ns - self._asked_ns >= self._fresh_ns:
                self._asked_ns = now_ns
                self._renew()
            return self._answer

    def _renew(self) -> None:
        try:
            self._answer, state = self._ask(), "ok"
        except Unavailable as error:
            self._answer, state = None, error.state
            if state != self.state:
                log.warning("no identities by %s: %s (%s)", self.name, state, error)
        self.state = state
