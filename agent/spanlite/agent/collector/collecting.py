"""Collecting: subscribed to CUPTI, buffer callbacks registered, kinds enabled. And giving that up for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable

from spanlite.agent.collector.abi import (
    CONCURRENT_KERNEL,
    CONTEXT_CREATED,
    CTX_GET_CURRENT,
    DRIVER_API,
    ENTER,
    MEMCPY,
    MEMSET,
    MULTIPLE_SUBSCRIBERS,
    RESOURCE,
    SUCCESS,
    Cupti,
)
from spanlite.agent.collector.buffers import Buffers
from spanlite.agent.collector.state import State
from spanlite.runtime.clock import Clock

KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET)
"""With a span each, none of API calls: those cost most, and CUPTI never forgets that they were on."""
_RETRY_NS = 10 * 10**9


class Collecting:
    """What CUPTI is told to do; never called from its callbacks.

    Args:
        saw_work: told at the first context.
        saw_call: told the correlation id of each call of cuCtxGetCurrent, once stamps are wanted.
    """

    def __init__(
        self,
        cupti: Cupti,
        buffers: Buffers,
        state: State,
        *,
        clock: Clock,
        saw_work: Callable[[], None],
        saw_call: Callable[[int], None],
    ) -> None:
        self._cupti, self._buffers, self._state = cupti, buffers, state
        self._clock = clock
        self._saw_work, self._saw_call = saw_work, saw_call
        self._lock = threading.RLock()  # a signal handler may pause while we do
        self._subscribed = self._registered = self._enabled = self._wants_stamps = self._paused = False
        self._retry_at = 0
        self.worked = False

    def start(self) -> None:
        """Begins; what goes wrong is a state, and what may pass is tried again by `step`."""
        with self._lock:
            self._take_hold()
            self._retry_at = self._clock.monotonic_ns() + _RETRY_NS

    def want_stamps(self) -> None:
        """Calls of cuCtxGetCurrent are to be seen from now on."""
        with self._lock:
            if self._subscribed and not self._wants_stamps:
                self._cupti.enable_callback(DRIVER_API, CTX_GET_CURRENT)
            self._wants_stamps = True

    def step(self, now_ns: int) -> int | None:
        """Regular work of the sender: asks again after a conflict. When it is due next, monotonic."""
        with self._lock:
            if self._paused or self._state.word != "subscriber_conflict":
                return None
            if now_ns >= self._retry_at:
                self._take_hold()
                self._retry_at = now_ns + _RETRY_NS
            return self._retry_at

    def flush(self) -> None:
        """Takes from CUPTI the records of all that is done; never those of work that still runs."""
        if self._state.word in ("waiting", "active"):
            self._cupti.flush()

    def pause(self) -> None:
        """Leaves CUPTI to somebody else: kinds off, buffers taken back, unsubscribed."""
        with self._lock:
            if self._state.inert or self._paused:
                return
            if self._registered or self._state.word == "subscriber_conflict":
                self._let_go()
                self._paused = True
                self._state.set("paused")

    def resume(self) -> None:
        with self._lock:
            if self._paused and not self._state.inert:
                self._paused = False
                self._take_hold()

    def leave(self) -> None:
        """At the end, when nothing will be asked of CUPTI any more: kinds off, the last records, no more callbacks."""
        with self._lock:
            if self._registered:
                self._let_go()
                self._cupti.register_nobody()

    def _take_hold(self) -> None:
        """Subscribes first: that tells whether anybody else is there, before their buffers could become ours."""
        result = self._subscribe()
        if result == SUCCESS:
            result = self._cupti.register(self._buffers.requested, self._buffers.complete)
            self._registered = result == SUCCESS
        if result == SUCCESS:
            result = self._enable(on=True)
        if result == SUCCESS:
            self._state.set("active" if self.worked else "waiting")
            return
        self._let_go()
        self._state.set("subscriber_conflict" if result == MULTIPLE_SUBSCRIBERS else f"cupti_error_{result}")

    def _subscribe(self) -> int:
        result = self._cupti.subscribe(self._called)
        if result != SUCCESS:
            return result
        self._subscribed = True
        result = self._cupti.enable_callback(RESOURCE, CONTEXT_CREATED)
        if result == SUCCESS and self._wants_stamps:
            result = self._cupti.enable_callback(DRIVER_API, CTX_GET_CURRENT)
        return result

    def _called(self, domain: int, cbid: int, site: int, correlation: int) -> None:
        if domain == DRIVER_API:
            if cbid == CTX_GET_CURRENT and site == ENTER:
                self._saw_call(correlation)
        elif domain == RESOURCE and cbid == CONTEXT_CREATED:
            self._saw_work()

    def _enable(self, *, on: bool) -> int:
        results = [self._cupti.enable(kind) if on else self._cupti.disable(kind) for kind in KINDS]
        self._enabled = on
        return next((result for result in results if result != SUCCESS), SUCCESS)

    def _let_go(self) -> None:
        if self._enabled:
            self._enable(on=False)
        if self._registered:
            self._cupti.flush()
        if self._subscribed:
            self._cupti.unsubscribe()
        self._registered = self._subscribed = False
