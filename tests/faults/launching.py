"""A program that launches: libcuda and libcupti are imitations, and the collector is loaded as cuInit would load it.

    launching.py LIBCUDA LIBCUPTI RECORD TIMES

RECORD is a file with one kernel record; the start of each launch goes to TIMES, 8 bytes each. CUDA_INJECTION64_PATH
names the collector; without it none is loaded. It does what each line of its input says and answers with one line, the
same whether it is traced or not:

    launch COUNT RATE          so many launches of one kernel each, RATE a second
    background COUNT RATE      the same on another thread; answers at once
    join                       when that thread has ended
    fork COUNT                 children that live on for a moment without exec, as workers of a data loader do
    execute COUNT              children that execute `true` after a fork
    steps COUNT LAUNCHES PAUSE_US FILE    times of so many steps, ns, 8 bytes each, into FILE
    raise NUMBER, abort, exit NUMBER
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
import threading
import warnings
from array import array
from collections import Counter
from pathlib import Path

from spanlite.runtime import settings
from spanlite.runtime.clock import SystemClock

_CLOCK = SystemClock()
_START, _CORRELATION = struct.Struct("<QQ"), struct.Struct("<I")
_START_AT, _CORRELATION_AT = 16, 92
"""In a kernel record of CUPTI 13.4 and later."""
_MODULUS = (1 << 61) - 1


class Work:
    """What the program computes, and the imitation of CUPTI that sees it."""

    def __init__(self, cuda: str, cupti: str, record: Path, times: Path) -> None:
        self._kept = ctypes.CDLL(cuda)
        self._cupti = ctypes.CDLL(cupti)
        self._launch, self._fire = self._cupti.mock_launch, self._cupti.mock_fire
        self._launch.restype = ctypes.c_uint32
        self._fire.restype, self._fire.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]
        self._record = record.read_bytes()
        self._times = times.open("ab", buffering=0)  # nothing that a child would write again
        self._newest = 0
        self.value = 1
        self.collector: ctypes.CDLL | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """cuInit, then a context."""
        path = settings.inherited().get("CUDA_INJECTION64_PATH")
        if path:
            self.collector = ctypes.CDLL(path)
            assert self.collector.InitializeInjection() == 1
        self._cupti.mock_context()

    def once(self) -> int:
        """A launch of one kernel; when it began, later than the one before."""
        self._newest = start = max(_CLOCK.unix_ns(), self._newest + 1)
        record = bytearray(self._record)
        _START.pack_into(record, _START_AT, start, start + 1000)
        _CORRELATION.pack_into(record, _CORRELATION_AT, self._launch())
        self._fire(bytes(record), len(record))
        self.value = (self.value * 6364136223846793005 + 1442695040888963407) % _MODULUS
        return start

    def launch(self, count: str, rate: str) -> str:
        begun, started = _CLOCK.monotonic_ns(), array("q")
        while len(started) < int(count):
            due = (_CLOCK.monotonic_ns() - begun) * int(rate) // 10**9 + 1
            while len(started) < min(due, int(count)):
                started.append(self.once())
            _CLOCK.sleep_s(0.0005)
        self._times.write(started.tobytes())
        return f"launched {count}: {self.value}"

    def background(self, count: str, rate: str) -> str:
        self._thread = threading.Thread(target=self.launch, args=(count, rate))
        self._thread.start()
        return "ok"

    def join(self) -> str:
        assert self._thread is not None
        self._thread.join()
        return f"joined: {self.value}"

    def steps(self, count: str, launches: str, pause_us: str, path: str) -> str:
        taken = array("q")
        for _ in range(int(count)):
            begun = _CLOCK.monotonic_ns()
            for _ in range(int(launches)):
                self.once()
            taken.append(_CLOCK.monotonic_ns() - begun)
            _CLOCK.sleep_s(int(pause_us) / 1e6)
        Path(path).write_bytes(taken.tobytes())
        return f"stepped {count}: {self.value}"

    def fork(self, count: str) -> str:
        children = []
        for number in range(int(count)):
            child = os.fork()
            if child == 0:
                self._live_on(number)
            children.append(child)
        return _waited(children)

    def _live_on(self, number: int) -> None:
        """A child: its exit code is another one where anything of the collector is alive in it."""
        if self.collector is not None:
            self.collector.spanlite_state.restype = ctypes.c_char_p
            assert self.collector.spanlite_state() == b"forked"
        assert len(list(Path("/proc/self/task").iterdir())) == 1
        assert not _sockets()
        if number % 2:
            sys.exit(10 + number % 3)  # with all exit handlers
        os._exit(10 + number % 3)

    def execute(self, count: str) -> str:
        children = []
        for _ in range(int(count)):
            child = os.fork()
            if child == 0:
                os.execv("/bin/true", ["true"])  # noqa: S606  # no shell is wanted
            children.append(child)
        return _waited(children)


def _sockets() -> list[str]:
    found = []
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            target = str(entry.readlink())
        except OSError:  # that of the listing itself
            continue
        if target.startswith("socket:"):
            found.append(target)
    return found


def _waited(children: list[int]) -> str:
    """How many children ended with which code."""
    ended = Counter(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    return " ".join(f"{code}:{count}" for code, count in sorted(ended.items()))


def main() -> None:
    """Commands until the input ends."""
    warnings.simplefilter("ignore", DeprecationWarning)  # forks with threads are what is tried here
    cuda, cupti, record, times = sys.argv[1:]
    work = Work(cuda, cupti, Path(record), Path(times))
    work.start()
    for line in iter(sys.stdin.readline, ""):
        name, *words = line.split()
        if name == "exit":
            sys.exit(int(words[0]))
        elif name == "abort":
            os.abort()
        elif name == "raise":
            signal.raise_signal(int(words[0]))
        else:
            print(getattr(work, name)(*words), flush=True)  # noqa: T201  # its output is what is compared


if __name__ == "__main__":
    main()
