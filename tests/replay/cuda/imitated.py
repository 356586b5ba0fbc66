"""The imitated GPU, runs on it, and what it wrote down of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from spanlite.contract.columns import Int64
from spanlite.replay.cuda.library import LAUNCH, Calibration, Enactor, Stand
from spanlite.replay.cuda.ptx import busy_text
from spanlite.runtime.clock import SystemClock
from tests.replay.cuda.building import Built

CLOCK = SystemClock()
FLOOR, WAVE, GAP, LAUNCHING, TICK = 1600, 320, 640, 2560, 32
"""What the imitated GPU takes, ns: a kernel beyond its duration, more for each further wave of blocks, between kernels,
from the call to the start at the least; and the step of its timer."""
TRAIN_GAP, TRAIN_LAUNCHING = 320, 5120
"""The same of a graph's kernels."""
EARLY = 500
"""A kernel is launched together with those in front of it if it begins no earlier than so, ns."""
_CERTAIN_NS = 2000
RECORD = np.dtype(
    [("name", "S64"), ("stream", "<i4"), ("priority", "<i4"), ("grid", "<u4", 3), ("block", "<u4", 3)]
    + [("dynamic_shared", "<u4"), ("place", "<u4")]
    + [(name, "<i8") for name in ("tag", "duration", "queued", "start", "end", "gpu_start", "gpu_end")]
)
Setting = int | Callable[[], int]
_PATIENCE_NS = 60 * 10**9


@dataclass(frozen=True)
class Shape:
    """A launch: name, registers, blocks, threads of a block, bytes of dynamic shared memory."""

    name: str = "axpy"
    registers: int = 32
    grid: tuple[int, int, int] = (132, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    dynamic: int = 0


@dataclass(frozen=True)
class Timeline:
    """Kernels in the order of their due times: ns since the start, ns, indexes; each of shape (n,)."""

    due: Int64
    duration: Int64
    queue: Int64
    launch: Int64

    @classmethod
    def of(
        cls,
        due: Sequence[int] | Int64,
        duration: int | Sequence[int] | Int64,
        queue: int | Int64 = 0,
        launch: int | Int64 = 0,
    ) -> Timeline:
        """What is one number holds for all."""
        columns = np.broadcast_arrays(*(np.asarray(column, np.int64) for column in (due, duration, queue, launch)))
        return cls(*(np.ascontiguousarray(column) for column in columns))

    def __len__(self) -> int:
        return len(self.due)


@dataclass(frozen=True)
class Played:
    """A run that ended.

    Attributes:
        late: as it was told, ns, shape (n,).
        log: what the GPU wrote down of these kernels, in the order of their launches, shape (n,).
        due: in host's time.
    """

    calibration: Calibration
    floors: Int64
    late: Int64
    stand: Stand
    due: Int64
    log: np.ndarray[tuple[int], np.dtype[np.void]]

    @property
    def truly_late(self) -> Int64:
        """By the GPU's own account, ns, shape (n,)."""
        late: Int64 = self.log["start"] - self.due[: len(self.log)]
        return late

    @property
    def earliest(self) -> int:
        """How late a kernel must be at the least, ns.

        A call comes before its time by what launches take of late, which moves within three times of what was measured;
        on this GPU they take no less than a fixed time.
        """
        found = self.calibration
        return min(LAUNCHING - 3 * found.launch, TRAIN_LAUNCHING - 3 * found.train_launch) - EARLY


class Gpu:
    """An imitated GPU that can be opened again and again.

    Args:
        folder: for its log.
    """

    def __init__(self, built: Built, folder: Path) -> None:
        self.built = built
        self._log = folder / "kernels.log"

    @contextmanager
    def opened(
        self, settings: Mapping[str, Setting] | None = None, *, device: int = 0, cuda: Path | None = None
    ) -> Iterator[Enactor]:
        """A handle of it.

        Args:
            settings: of mock_cuda.h, e.g. {"offset": -500}; a function is asked each time.
        """
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MOCK_LOG", str(self._log))
            for name, value in (settings or {}).items():
                patch.setenv(f"MOCK_{name.upper()}", str(value if isinstance(value, int) else value()))
            library, libcuda = self.built.library, str(cuda or self.built.cuda)
            with Enactor(device, library=library, libcuda=libcuda) as enactor:
                yield enactor

    def set(self, name: str, value: int) -> None:
        """Changes it while it is open: slow, refused, faulty."""
        ctypes.CDLL(str(self.built.cuda)).mock_set(name.encode(), ctypes.c_int64(value))

    def log(self, launched: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """What it wrote down of the last kernels, in the order of their launches; all were there once."""
        rows = np.fromfile(self._log, RECORD)
        rows = rows[np.argsort(rows["tag"])]
        assert np.array_equal(rows["tag"], np.arange(1, len(rows) + 1)), "kernels are missing, or there twice"
        return rows[len(rows) - launched :]

    def play(
        self,
        timeline: Timeline,
        *,
        shapes: Sequence[Shape] = (Shape(),),
        priorities: Sequence[int] = (0,),
        from_ns: int | Callable[[], int] = 5_000_000,
        ahead_ns: int = 2_000_000,
        before: Callable[[], None] = lambda: None,
        **settings: Setting,
    ) -> Played:
        """Plays a timeline to its end.

        Args:
            priorities: of the queues that there are.
            from_ns: when it begins, from then on that the GPU is measured.
            before: is called once the GPU is measured.
        """
        with ExitStack() as stack:
            for _ in range(20):
                enactor = stack.enter_context(self.opened(settings))
                prepare(enactor, shapes, priorities)
                calibration, floors, _ = enactor.calibrate()
                if calibration.clock_uncertainty < _CERTAIN_NS:
                    break
                stack.close()  # the machine was busy
            else:
                pytest.skip("the machine is too busy to tell the time")
            before()
            origin = CLOCK.monotonic_ns() + (from_ns if isinstance(from_ns, int) else from_ns())
            enactor.begin(origin, ahead_ns)
            late = feed(enactor, timeline)
            stand = enactor.stand
        return Played(calibration, floors, late, stand, origin + timeline.due, self.log(stand.launched))


def prepare(enactor: Enactor, shapes: Sequence[Shape], priorities: Sequence[int]) -> None:
    """Compiles functions, and makes launches and queues known."""
    rows = np.zeros(len(shapes), LAUNCH)
    for row, shape in zip(rows, shapes, strict=True):
        row["function"], registers = enactor.function(busy_text(shape.name, shape.registers), shape.name)
        assert registers >= shape.registers
        row["grid"], row["block"], row["dynamic_shared"] = shape.grid, shape.block, shape.dynamic
    enactor.launches(rows)
    assert [enactor.queue(priority) for priority in priorities] == list(range(len(priorities)))


def feed(enactor: Enactor, timeline: Timeline) -> Int64:
    """Feeds it all, and waits until it has ended; how late kernels began, ns."""
    fed, late, end = 0, [], CLOCK.monotonic_ns() + _PATIENCE_NS
    while fed < len(timeline) or not enactor.drained:
        if fed < len(timeline):
            rest = slice(fed, None)
            fed += enactor.feed(
                timeline.due[rest],
                timeline.duration[rest],
                timeline.queue[rest].astype(np.int32),
                timeline.launch[rest].astype(np.int32),
            )
        late.append(enactor.started())
        CLOCK.sleep_s(0.001)
        assert CLOCK.monotonic_ns() < end, f"it does not end: {enactor.stand}"
    late.append(enactor.started())
    return np.concatenate(late)


def until(met: Callable[[], bool], what: str) -> None:
    """Waits for a condition; a minute of it not being met fails the test."""
    end = CLOCK.monotonic_ns() + _PATIENCE_NS
    while not met():
        assert CLOCK.monotonic_ns() < end, f"in vain waited for: {what}"
        CLOCK.sleep_s(0.001)
