"""A thread for each GPU: opens its counters, fetches samples, gives them to kernels, tells; what fails is retried."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from spanlite.agent.backoff import Backoff
from spanlite.agent.counters.common import Common
from spanlite.agent.counters.hold import FATES, Hold
from spanlite.agent.counters.measuring import measure
from spanlite.agent.counters.pace import Pace
from spanlite.agent.counters.reading import InOrder, Reading
from spanlite.agent.counters.samples import Samples
from spanlite.agent.counters.states import (
    FAILED,
    OUT_OF_MEMORY,
    SAMPLING,
    SLOWED,
    STARTING,
    STUCK,
    advice,
    state_of,
)
from spanlite.agent.counters.telling import Teller
from spanlite.contract import catalogue
from spanlite.contract.errors import CountersError

log = logging.getLogger(__name__)

_TELL_NS = 10**9
_LOOK_S = 1.0
"""Between two looks at what is still held, while the GPU is not sampled."""
_JOIN_S = 2.0
_STUCK_NS = 15 * 10**9
"""Since its last step was due; opening takes a second or two."""
_MOST_DECODINGS = 16
"""One after the other, before the thread waits again."""


class Sampler:
    """One GPU's. `step` is what its thread does again and again.

    Attributes:
        uuid: of the GPU, once it was asked.
        state: a word of `states`; empty where the GPU is none of those to sample.
        decode_ns: what decoding has taken.
    """

    def __init__(self, common: Common, device: int, *, backoff: Backoff | None = None) -> None:
        self.uuid = ""
        self.state = STARTING
        self.decode_ns = 0
        self._common = common
        self._device = device
        self._backoff = backoff or Backoff()
        self._pace = Pace()
        self._order = InOrder()
        self._hold = Hold()
        self._teller: Teller | None = None
        self._reading: Reading | None = None
        self._metrics: tuple[str, ...] = ()
        self._overflowed = False
        self._retry_ns = self._told_ns = self._due_ns = common.clock.monotonic_ns()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"spanlite-counters-{device}", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Ends sampling and tells the rest. A thread that hangs in the driver is left behind."""
        self._ending.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._ending.wait(self._carefully(self.step)) and self.state:
            pass
        self._carefully(self.end)

    def _carefully(self, do: Callable[[], float]) -> float:
        """A fault of ours ends neither the agent nor the thread: it is told and tried again, as the driver's are."""
        try:
            return do()
        except Exception:
            log.exception("sampling %s failed", self._name)
            self._close()
            self._later(FAILED)
            return _LOOK_S

    @property
    def told_state(self) -> str:
        """The state, or `stuck` where its thread has not come back from the driver; any thread may ask."""
        silent_ns = self._common.clock.monotonic_ns() - self._due_ns
        return STUCK if self.state and silent_ns > _STUCK_NS else self.state

    def step(self) -> float:
        """Does what is due; returns the seconds until there is more to do."""
        now_ns = self._due_ns = self._common.clock.monotonic_ns()
        if self._reading is None and self.state and now_ns >= self._retry_ns:
            self._try(self._open)
        if self._reading is not None:
            self._try(self._fetch)
        if now_ns - self._told_ns >= _TELL_NS:
            self._told_ns = now_ns
            self._tell()
        waiting_s = max(0.0, (self._retry_ns - now_ns) / 1e9)
        wait_s = self._pace.wait_s if self._reading is not None else min(_LOOK_S, max(self._pace.wait_s, waiting_s))
        self._due_ns = self._common.clock.monotonic_ns() + round(wait_s * 1e9)
        return wait_s

    def end(self) -> float:
        """The last step: what cannot be settled yet is given up."""
        self._close()
        self._tell()
        self._lost("stopped", self._hold.give_up())
        return 0.0

    @property
    def _name(self) -> str:
        return self.uuid or f"device {self._device}"

    def _try(self, do: Callable[[], None]) -> None:
        try:
            do()
        except CountersError as error:
            self._close()
            if error.result == OUT_OF_MEMORY and self.state in (SAMPLING, SLOWED):  # CUPTI's word of a full buffer
                self._overflow()
                self._retry_ns = 0
                return
            self._order.anew()
            state = state_of(error)
            if state != self.state:
                log.warning("counters of %s: %s: %s; %s", self._name, state, error, advice(state))
            self._later(state)

    def _later(self, state: str) -> None:
        self.state = state
        self._retry_ns = self._common.clock.monotonic_ns() + round(self._backoff.next_s() * 1e9)

    def _open(self) -> None:
        common = self._common
        if not self._known():
            return
        reading = Reading(common.library, self._device, common.interval_ns * self._pace.factor)
        if reading.metrics != self._metrics:
            self._lost("held", self._hold.begin(reading.metrics))
            self._metrics = reading.metrics
        self._reading = reading
        common.holds[self.uuid] = self._hold
        state = SAMPLING if self._pace.factor == 1 else SLOWED
        if state != self.state:
            log.info("counters of %s: %s every %d ns", self._name, state, common.interval_ns * self._pace.factor)
        self.state = state

    def _known(self) -> bool:
        """Asks who the GPU is and what is possible; False where it is none of those to sample.

        Raises:
            CountersError: it cannot be sampled.
        """
        common, device = self._common, self._common.library.probe(self._device)
        if common.gpus and device.uuid not in common.gpus:
            self.uuid, self.state = device.uuid, ""
            return False
        if device.uuid != self.uuid:
            self.uuid = device.uuid
            self._teller = common.teller(device.uuid, self._device)
        if device.permission:
            raise CountersError(device.permission, device.why)
        lacking = [f"{what} is {level}" for what, level in device.levels.items() if level in ("no", "off")]
        if device.levels.get("supported") in ("no", "off"):
            raise CountersError(-4, f"{device.chip} cannot be sampled: {', '.join(lacking)}")
        return True

    def _fetch(self) -> None:
        """Empties the GPU's buffer; what was decoded before a failure is kept.

        Raises:
            CountersError: CUPTI says no.
        """
        cost_ns = 0
        for _ in range(_MOST_DECODINGS):
            if self._reading is None:
                return
            decoded = self._reading.decode()
            cost_ns += decoded.decode_ns + decoded.evaluate_ns + decoded.reset_ns
            if decoded.overflow:
                self._overflow()
            self._take(decoded.samples)
            if not decoded.more:
                break
        self.decode_ns += cost_ns
        if self._pace.took(cost_ns):
            self._slow_down()

    def _take(self, samples: Samples) -> None:
        if not len(samples):
            return
        self._backoff.reset()
        samples = self._order.take(samples, overflow=self._overflowed)
        self._overflowed = False
        for reason in list(self._order.lost):
            self._lost(reason, self._order.lost.pop(reason))
        measured = measure(samples, self._metrics)
        self._lost("value", len(samples) - len(measured.samples))
        if self._teller is not None:
            self._teller.add(measured)
        self._lost("held", self._hold.add(measured.samples))

    def _tell(self) -> None:
        """Gives samples to kernels, as far as they can be, and hands on what came since the last time."""
        settled = self._hold.settle(self._common.clock.unix_ns())
        if self._teller is None:
            return
        if len(settled.samples):
            for fate, word in enumerate(FATES):
                self._common.counts.add(catalogue.AGENT_COUNTER_SAMPLES, int((settled.fate == fate).sum()), word)
            self._teller.add_owned(measure(settled.samples, self._metrics), settled.kernel)
        self._teller.tell()

    def _overflow(self) -> None:
        self._overflowed = True
        self._common.counts.add(catalogue.AGENT_COUNTER_OVERFLOWS)
        if self._pace.overflowed():
            self._slow_down()

    def _slow_down(self) -> None:
        log.warning(
            "counters of %s: decoding is too slow; from now on 1/%d of the samples", self._name, self._pace.factor
        )
        self._close()
        self._order.anew()
        self._retry_ns = 0

    def _close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            try:
                reading.close()
            except CountersError as error:
                log.info("counters of %s: %s", self._name, error)

    def _lost(self, reason: str, samples: int) -> None:
        if samples:
            self._common.counts.add(catalogue.AGENT_COUNTER_LOST, samples, reason)
