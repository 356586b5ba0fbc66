"""The program of driver.c once more, in Python: it is traced by the twin, and takes the same commands.

What the twin lacks (ranges through NVTX, looking for other clients) it has no commands for; pushes are the twin's own.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import stat
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

from spanlite.agent.collector.abi import open_library
from spanlite.agent.collector.link import _unread
from spanlite.agent.collector.options import Options
from spanlite.agent.collector.twin import Twin
from spanlite.runtime import settings
from spanlite.runtime.clock import SystemClock

_libc = ctypes.CDLL(None, use_errno=True)
_MAP = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE


class Driver:
    """State between commands."""

    def __init__(self) -> None:
        self.options = Options.of(settings.inherited())
        self.twin = Twin(self.options, SystemClock())
        self.marks = False
        self.kept: list[object] = []

    def mocked(self, name: str) -> ctypes._NamedFuncPointer:
        """A function of the imitation of CUPTI."""
        mock = open_library("libcupti.so.13", loaded=True) or ctypes.CDLL(self.options.cupti)
        return getattr(mock, name)  # type: ignore[no-any-return]

    def preload(self, path: str) -> str:
        self.kept.append(ctypes.CDLL(path))
        return "ok"

    def arena(self, address: str, path: str) -> str:
        text = Path(path).read_bytes()
        _libc.mmap.restype, _libc.mmap.argtypes = (
            ctypes.c_void_p,
            [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 4],
        )
        at = _libc.mmap(int(address), len(text), mmap.PROT_READ | mmap.PROT_WRITE, _MAP, -1, 0)
        assert at == int(address), "the arena's place is taken"
        ctypes.memmove(at, text, len(text))
        return "ok"

    def poke(self, address: str, text: str) -> str:
        ctypes.memmove(int(address), text.encode() + b"\0", len(text) + 1)
        return "ok"

    def init(self, _path: str) -> str:
        self.twin.start()
        return "1"

    def nvtx(self, _path: str) -> str:
        self.marks = self.options.stages and not self.options.disabled
        return str(int(self.marks))

    def cuda(self, result: str) -> str:
        ctypes.c_int.in_dll(ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD), "mock_cuda_result").value = int(result)
        return "ok"

    def set(self, key: str, value: str) -> str:
        self.mocked("mock_set")(key.encode(), ctypes.c_long(int(value)))
        return "ok"

    def get(self, key: str) -> str:
        function = self.mocked("mock_get")
        function.restype = ctypes.c_long
        return str(function(key.encode()))

    def context(self) -> str:
        self.mocked("mock_context")()
        return "ok"

    def launch(self) -> str:
        return str(self.mocked("mock_launch")())

    def fire(self, path: str, times: str = "1") -> str:
        return self.threads("1", path, times)

    def threads(self, count: str, path: str, times: str) -> str:
        records, taken = Path(path).read_bytes(), [0] * int(count)
        function = self.mocked("mock_fire")
        function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]

        def fire(at: int) -> None:
            for _ in range(int(times)):
                taken[at] += function(records, len(records))

        others = [threading.Thread(target=fire, args=(at,)) for at in range(1, int(count))]
        for other in others:
            other.start()
        fire(0)
        for other in others:
            other.join()
        return str(sum(taken))

    def flush(self) -> str:
        return str(self.mocked("cuptiActivityFlushAll")(0))

    def hold(self, count: str) -> str:
        self.mocked("mock_hold")(int(count))
        return "ok"

    def release(self) -> str:
        self.mocked("mock_release")()
        return "ok"

    def push(self, *words: str) -> str:
        return str(self.twin.push(" ".join(words)) if self.marks else -2)

    pushex = pushreg = pushdomain = push

    def pop(self) -> str:
        return str(self.twin.pop() if self.marks else -2)

    popdomain = pop

    def bench(self, count: str) -> str:
        for _ in range(int(count) // 5):
            for _ in range(5):
                self.twin.push("decode_step")
            for _ in range(5):
                self.twin.pop()
        return "0"

    def state(self) -> str:
        return self.twin.state()

    def pause(self) -> str:
        self.twin.pause()
        return "ok"

    def resume(self) -> str:
        self.twin.resume()
        return "ok"

    def maps(self, text: str) -> str:
        return str(int(text in Path("/proc/self/maps").read_text()))

    def tasks(self) -> str:
        return str(len(list(Path("/proc/self/task").iterdir())))

    def sockets(self) -> str:
        return str(len(_sockets()))

    def unread(self) -> str:
        return str(sum(map(_unread, _sockets())))  # type: ignore[arg-type]

    def rss(self) -> str:
        (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS:")]
        return line.split()[1]

    def fork(self, path: str = "") -> str:
        child = os.fork()
        if child == 0:
            taken = self.fire(path, "3") if path else "0"
            print(self.state(), self.tasks(), self.sockets(), taken, self.push("in the child"), flush=True)  # noqa: T201
            sys.exit(0)  # with all exit handlers
        return _waited(child)

    def execute(self) -> str:
        count = "for fd in /proc/self/fd/*; do readlink $fd; done | grep -c socket: || true"
        return _waited(os.posix_spawn("/bin/sh", ["sh", "-c", count], settings.inherited()))

    def exit(self, status: str) -> str:
        sys.exit(int(status))

    def _exit(self, status: str) -> str:
        os._exit(int(status))

    def abort(self) -> str:
        os.abort()

    def raise_(self, number: str) -> str:
        signal.raise_signal(int(number))
        return "ok"


def _sockets() -> list[int]:
    found = []
    for entry in list(Path("/proc/self/fd").iterdir()):
        fd = int(entry.name)
        try:
            if fd > 2 and stat.S_ISSOCK(os.fstat(fd).st_mode):
                found.append(fd)
        except OSError:  # that of the listing itself
            continue
    return found


def _waited(child: int) -> str:
    """What the child said is the answer; nothing more where it ended well."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"child ended with {status}" if status else ""


def main() -> None:
    """Commands until the input ends."""
    warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads is what is tried here
    driver = Driver()
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        command: Callable[..., str] = getattr(driver, "raise_" if words[0] == "raise" else words[0])
        answer = command(*words[1:])
        if answer:
            print(answer, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
