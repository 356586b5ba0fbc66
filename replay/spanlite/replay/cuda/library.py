"""The compiled replay/native, which drives CUDA."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType

import numpy as np

from spanlite.contract.columns import Int32, Int64, Table
from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.cuda.ptx import CALIBRATION_NAME, ECHO, ECHO_NAME, busy_text

NAME = "libspanlite_enact.so"
REVISION = 6
LAUNCH = np.dtype([("function", "<i4"), ("grid", "<u4", 3), ("block", "<u4", 3), ("dynamic_shared", "<u4")])
"""One launch: index of a function, blocks, threads of a block, bytes."""
_TOLD = 1 << 16
_HINT = "needs the driver of an NVIDIA GPU (libcuda.so.1), at least CUDA 12"
_P, _I64, _I32, _TEXT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_char_p


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured of a GPU at the start, nanoseconds.

    Attributes:
        clock_offset: of its timer less the host's monotonic clock.
        clock_uncertainty: of that.
        clock_step: of its timer.
        launch: from the call that launches a kernel to its start on an idle GPU.
        gap: between kernels that are queued one behind the other.
        train_launch: from the call that launches a train to the start of its first kernel.
        train_gap: between kernels of a train.
    """

    clock_offset: int
    clock_uncertainty: int
    clock_step: int
    launch: int
    gap: int
    train_launch: int
    train_gap: int


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a run stands, in kernels.

    Attributes:
        fed: taken by `feed`.
        launched: handed to CUDA.
        started: those that have begun, as the GPU wrote down.
        in_trains: those that were launched several at once.
    """

    fed: int
    launched: int
    started: int
    in_trains: int


class Enactor:
    """One GPU, and the kernels that are re-enacted on it; a context that gives it back.

    Args:
        device: which, as CUDA counts them.
        library: of replay/native, by default the one that was installed.
        libcuda: the driver's library.

    Attributes:
        gpu: its name.
        processors: its multiprocessors.
        driver: CUDA version of the driver, 13000 for 13.0.

    Raises:
        UsageError: there is no such GPU, or no driver.
    """

    def __init__(self, device: int = 0, *, library: Path | None = None, libcuda: str = "libcuda.so.1") -> None:
        self._c = _load(library or Path(__file__).parents[1] / NAME)
        why = ctypes.create_string_buffer(512)
        self._handle = self._c.spanlite_enact_open(libcuda.encode(), device, why, len(why))
        if not self._handle:
            raise UsageError(f"--to cuda {_HINT}: {why.value.decode(errors='replace')}")
        processors, driver = _I32(), _I32()
        name = self._c.spanlite_enact_gpu(self._handle, ctypes.byref(processors), ctypes.byref(driver))
        self.gpu, self.processors, self.driver = name.decode(errors="replace"), processors.value, driver.value
        self._late = np.empty(_TOLD, np.int64)
        self._launches = 0

    def __enter__(self) -> Enactor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._c.spanlite_enact_close(self._handle)

    def function(self, ptx: str, name: str) -> tuple[int, int]:
        """Compiles a kernel; its index, and the registers of a thread."""
        registers = _I32()
        index = self._c.spanlite_enact_function(self._handle, ptx.encode(), name.encode(), ctypes.byref(registers))
        return self._done(index), registers.value

    def resident(self, launch: Table) -> int:
        """Blocks of a launch (LAUNCH, shape ()) that one multiprocessor holds at a time; 0 where it does not fit."""
        return self._done(self._c.spanlite_enact_resident(self._handle, launch.ctypes.data))

    def launches(self, launches: Table) -> None:
        """Makes all launches known, dtype LAUNCH, once; `feed` names them by their place."""
        held = np.ascontiguousarray(launches, LAUNCH)
        self._launches = len(held)
        self._done(self._c.spanlite_enact_launches(self._handle, len(held), held.ctypes.data))

    def queue(self, priority: int) -> int:
        """A further queue of kernels that run one after the other; its index."""
        return self._done(self._c.spanlite_enact_queue(self._handle, priority))

    def calibrate(self) -> tuple[Calibration, Int64, Int64]:
        """Measures the GPU, which should have nothing else to do; about a millisecond a launch.

        Returns:
            What was found; of each launch what its duration has beyond the time that it is busy; and the shortest that
            it can have, ns.
        """
        echo, _ = self.function(ECHO, ECHO_NAME)
        busy, _ = self.function(busy_text(CALIBRATION_NAME, 0), CALIBRATION_NAME)
        found = (_I64 * len(fields(Calibration)))()
        floors, least = np.zeros(self._launches, np.int64), np.zeros(self._launches, np.int64)
        columns = (floors.ctypes.data, least.ctypes.data)
        self._done(self._c.spanlite_enact_calibrate(self._handle, busy, echo, found, *columns))
        return Calibration(*found), floors, least

    def begin(self, origin_ns: int, ahead_ns: int) -> None:
        """Starts to play.

        Args:
            origin_ns: time 0 of what is due, on the monotonic clock.
            ahead_ns: how long before its time a kernel may be handed to CUDA.
        """
        self._done(self._c.spanlite_enact_begin(self._handle, origin_ns, ahead_ns))

    def feed(self, due_ns: Int64, duration_ns: Int64, queue: Int32, launch: Int32) -> int:
        """Takes kernels in the order of their due times, as many as there is room for (65,536); returns how many.

        Args:
            due_ns: ascending, since time 0, shape (n,).
            duration_ns: shape (n,).
            queue, launch: indexes, shape (n,).

        Raises:
            ReplayError: the GPU refused or failed.
        """
        due_ns, duration_ns = np.ascontiguousarray(due_ns), np.ascontiguousarray(duration_ns)
        queue, launch = np.ascontiguousarray(queue), np.ascontiguousarray(launch)
        columns = (due_ns.ctypes.data, duration_ns.ctypes.data, queue.ctypes.data, launch.ctypes.data)
        return self._done(self._c.spanlite_enact_feed(self._handle, len(due_ns), *columns))

    def started(self) -> Int64:
        """How late kernels began that have begun and were not told of yet, ns; below 0 for early ones."""
        count = self._c.spanlite_enact_started(self._handle, _TOLD, self._late.ctypes.data)
        return self._late[:count].copy()

    @property
    def drained(self) -> bool:
        """Whether all that was taken has ended; ask for what has `started` in between.

        Raises:
            ReplayError: the GPU failed.
        """
        return bool(self._done(self._c.spanlite_enact_drained(self._handle)))

    def stop(self) -> None:
        """Ends what runs at once, and leaves the rest out."""
        self._c.spanlite_enact_stop(self._handle)

    @property
    def stand(self) -> Stand:
        found = (_I64 * len(fields(Stand)))()
        self._c.spanlite_enact_progress(self._handle, found)
        return Stand(*found)

    def _done(self, result: int) -> int:
        if result < 0:
            said = self._c.spanlite_enact_error(self._handle).decode(errors="replace")
            raise ReplayError(f"{self.gpu}: {said}")
        return int(result)


def _load(path: Path) -> ctypes.CDLL:
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise UsageError(f"--to cuda is not built ({error}); install a C compiler and spanlite again") from error
    handle: Sequence[type] = [_P]
    functions: dict[str, tuple[type | None, Sequence[type]]] = {
        "revision": (_I64, []),
        "open": (_P, [_TEXT, ctypes.c_int, _TEXT, _I64]),
        "error": (_TEXT, handle),
        "gpu": (_TEXT, [_P, _P, _P]),
        "function": (_I64, [_P, _TEXT, _TEXT, _P]),
        "resident": (_I64, [_P, _P]),
        "launches": (_I64, [_P, _I64, _P]),
        "queue": (_I64, [_P, _I32]),
        "calibrate": (_I64, [_P, _I32, _I32, _P, _P, _P]),
        "begin": (_I64, [_P, _I64, _I64]),
        "feed": (_I64, [_P, _I64, _P, _P, _P, _P]),
        "started": (_I64, [_P, _I64, _P]),
        "drained": (_I64, handle),
        "stop": (None, handle),
        "progress": (None, [_P, _P]),
        "close": (None, handle),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(found, f"spanlite_enact_{name}")
        function.restype, function.argtypes = result, list(arguments)
    if found.spanlite_enact_revision() != REVISION:
        raise UsageError(f"{path} is of another version; install spanlite again")
    return found
