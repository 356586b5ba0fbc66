"""Custom metrics from a program: `counter("tokens", layer=3).add(17)`; see docs/custom-metrics.md.

A handle is made once for a series and kept; a call of it takes a fraction of a microsecond, never waits and never
raises. Without an agent, with SPANLITE_DISABLE=1 or past a bound it does nothing but count what is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from spanlite.agent.recorder import INTEGER, MOST_SERIES, NUMBER, Recorder
from spanlite.contract.customs import VALUE_CHARS
from spanlite.runtime.clock import SystemClock

TIMING, COUNTER, GAUGE = 5, 6, 7
"""Kind's of contract.columns, which needs numpy."""
NS_BY_UNIT = {"_ms": 1e6, "_us": 1e3, "_ns": 1.0, "_s": 1e9, "_seconds": 1e9}
"""How names end that `observe` takes for timings, and what their values are worth in nanoseconds."""
COUNTED = ("_count", "_total")
"""How names end that `observe` takes for counters."""
_MOST_KEPT = 4 * MOST_SERIES
_monotonic_ns = SystemClock().monotonic_ns


class Counter:
    """A sum of whole numbers.

    Attributes:
        add: `add(n=1)` increases it by n >= 0.
    """

    __slots__ = ("add",)

    def __init__(self, recorder: Recorder, number: int, device: int) -> None:
        self.add: Callable[..., None] = _setter(recorder, INTEGER.pack, (number, COUNTER, device), 1)


class Gauge:
    """A number that comes and goes; of each window the newest is told.

    Attributes:
        set: `set(value)`, a float. A tensor on a GPU would have to be waited for: hand in numbers.
    """

    __slots__ = ("set",)

    def __init__(self, recorder: Recorder, number: int, device: int) -> None:
        self.set: Callable[..., None] = _setter(recorder, NUMBER.pack, (number, GAUGE, device), None)


class Timing:
    """Durations, as a histogram.

    Attributes:
        observe_ns: `observe_ns(ns, at_ns=None)`, whole nanoseconds; at_ns is when, Unix time, now if it is left out.
    """

    __slots__ = ("_recorder", "observe_ns")

    def __init__(self, recorder: Recorder, number: int, device: int) -> None:
        self._recorder = recorder
        self.observe_ns: Callable[..., None] = _timer(recorder, number, device)

    def observe(self, seconds: float) -> None:
        """A duration in seconds."""
        try:
            ns = round(seconds * 1e9)
        except Exception:  # noqa: BLE001  # whatever was handed in: the program goes on
            self._recorder.value.add()
            return
        self.observe_ns(ns)

    def time(self) -> Timer:
        """For `with`: times a block by the host's clock. A GPU is not waited for, so what it does is not in it."""
        return Timer(self.observe_ns)


class Timer:
    """Observes how long its block took, once for each `with`; not to be entered twice at a time."""

    __slots__ = ("_begin_ns", "_observe_ns")

    def __init__(self, observe_ns: Callable[..., None]) -> None:
        self._observe_ns = observe_ns

    def __enter__(self) -> None:
        self._begin_ns = _monotonic_ns()

    def __exit__(self, *_: object) -> None:
        self._observe_ns(_monotonic_ns() - self._begin_ns)


class _Over:
    """In the place of a handle whose series is one too many, or none: counts what it is given."""

    __slots__ = ("_lose",)

    def __init__(self, lose: Callable[[], int]) -> None:
        self._lose = lose

    def add(self, *_: object) -> None:
        self._lose()

    set = observe = observe_ns = add

    def time(self) -> Timer:
        return Timer(self.add)


class Observer:
    """Handles of one recorder. Programs use the functions of the module, which are those of `DEFAULT`."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self.recorder = recorder or Recorder()
        self._kept: dict[Any, Any] = {}
        self._over = _Over(self._lose_series)
        self._unfit = _Over(self._lose_value)

    def counter(self, name: str, /, *, device: int | None = None, **labels: object) -> Counter:
        """The counter of a name and labels; `device` says on which GPU, by the program's numbering."""
        try:
            made: Counter = self._kept[COUNTER, name, device, tuple(labels.items())]
        except Exception:  # noqa: BLE001  # not made yet, or a label that cannot be hashed
            made = self._make(Counter, COUNTER, name, device, labels)
        return made

    def gauge(self, name: str, /, *, device: int | None = None, **labels: object) -> Gauge:
        """The gauge of a name and labels."""
        try:
            made: Gauge = self._kept[GAUGE, name, device, tuple(labels.items())]
        except Exception:  # noqa: BLE001  # likewise
            made = self._make(Gauge, GAUGE, name, device, labels)
        return made

    def timing(self, name: str, /, *, device: int | None = None, **labels: object) -> Timing:
        """The timing of a name and labels."""
        try:
            made: Timing = self._kept[TIMING, name, device, tuple(labels.items())]
        except Exception:  # noqa: BLE001  # likewise
            made = self._make(Timing, TIMING, name, device, labels)
        return made

    def observe(self, name: str, value: float, /, *, device: int | None = None, **labels: object) -> None:
        """One observation; the end of the name says of what: `_ms`, `_us`, `_ns`, `_s` a timing, `_count`, `_total` a
        counter, anything else a gauge."""
        try:
            set_value = self._kept[None, name, device, tuple(labels.items())]
        except Exception:  # noqa: BLE001  # likewise
            set_value = self._make_any(name, device, labels)
        set_value(value)

    def flush(self, timeout_s: float = 1.0) -> None:
        """Has everything sent now that was observed."""
        self.recorder.flush(timeout_s)

    def _lose_series(self) -> int:
        return self.recorder.series_cap.add()  # another one after a fork

    def _lose_value(self) -> int:
        return self.recorder.value.add()

    def _make_any(self, name: object, device: int | None, labels: dict[str, object]) -> Callable[[Any], None]:
        """What takes the values of a name."""
        text = name if isinstance(name, str) else ""
        unit = text[text.rindex("_") :] if "_" in text else ""
        if unit in NS_BY_UNIT:
            timing = self._make(Timing, TIMING, name, device, labels)
            made = _scaled(self.recorder, timing.observe_ns, NS_BY_UNIT[unit])
        elif unit in COUNTED:
            made = self._make(Counter, COUNTER, name, device, labels).add
        else:
            made = self._make(Gauge, GAUGE, name, device, labels).set
        self._keep((None, name, device), labels, made)
        return made

    def _keep(self, key: tuple[object, ...], labels: dict[str, object], made: Any) -> None:
        """Keeps a handle, but for what is asked for with a label that cannot be hashed, or should not be held."""
        small = all(
            isinstance(each, int | float) or (type(each) is str and len(each) <= VALUE_CHARS)
            for each in labels.values()
        )
        with suppress(Exception):
            if small and len(self._kept) < _MOST_KEPT and not isinstance(getattr(made, "__self__", made), _Over):
                self._kept[(*key, tuple(labels.items()))] = made

    def _make(self, handle: type[Any], kind: int, name: object, device: int | None, labels: dict[str, object]) -> Any:
        recorder = self.recorder
        try:
            number = recorder.number(name, labels, device=device)
            place = 0 if device is None else device + 1
            if number is None:
                return self._over
            made = handle(recorder, number, place)
        except Exception:  # noqa: BLE001  # a label whose text cannot be had, for one
            return self._unfit
        self._keep((kind, name, device), labels, made)
        return made


def _setter(
    recorder: Recorder, pack: Callable[..., bytes], series: tuple[int, int, int], default: Any
) -> Callable[..., None]:
    number, kind, device = series
    buffer, extend, now = recorder.buffer, recorder.buffer.extend, recorder.now

    def record(value: Any = default) -> None:
        if len(buffer) >= recorder.room and not recorder.make_room():
            return
        try:
            extend(pack(number, now(), value, kind, device))
        except Exception:  # noqa: BLE001  # no such number: the program goes on
            recorder.value.add()

    return record


def _scaled(recorder: Recorder, observe_ns: Callable[..., None], scale: float) -> Callable[[Any], None]:
    def observe(value: Any) -> None:
        try:
            ns = round(value * scale)
        except Exception:  # noqa: BLE001  # whatever was handed in: the program goes on
            recorder.value.add()
            return
        observe_ns(ns)

    return observe


def _timer(recorder: Recorder, number: int, device: int) -> Callable[..., None]:
    buffer, extend, now, pack = recorder.buffer, recorder.buffer.extend, recorder.now, INTEGER.pack

    def observe_ns(ns: int, at_ns: int | None = None) -> None:
        if len(buffer) >= recorder.room and not recorder.make_room():
            return
        try:
            extend(pack(number, now() if at_ns is None else at_ns, ns, TIMING, device))
        except Exception:  # noqa: BLE001  # likewise
            recorder.value.add()

    return observe_ns


DEFAULT = Observer()
counter, gauge, timing = DEFAULT.counter, DEFAULT.gauge, DEFAULT.timing
observe, flush = DEFAULT.observe, DEFAULT.flush
