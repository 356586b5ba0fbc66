"""The heap that all threads share."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import sys, threading
from spanlite.runtime.allocator import bound_arenas

if sys.argv[1] == "bound":
    assert bound_arenas()
barrier = threading.Barrier(8)

def work():
    kept = [bytes(50_000) for _ in range(100)]
    barrier.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sizes = [line.split()[0].split("-") for line in open("/proc/self/maps")]
# A heap of glibc's begins at a multiple of 64 MiB; the libraries' files do not.
print(sum(int(begin, 16) % (64 << 20) == 0 for begin, _ in sizes))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has heaps of threads")
def test_threads_get_no_heaps_of_their_own() -> None:
    """Eight threads that allocate at once: each has a heap by default, none when it was bounded before."""

    def heaps(word: str) -> int:
        command = [sys.executable, "-c", CODE, word]
        return int(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)

    assert heaps("free") >= 2
    assert heaps("bound") == 0


FAULTS = """
import resource, sys
from spanlite.runtime.allocator import keep_freed

if sys.argv[1] == "kept":
    assert keep_freed()
for turn in range(64):
    if turn == 4:
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    columns = [bytearray(24 << 20) for _ in range(2)]
    del columns
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_freed_memory_is_used_again() -> None:
    """Sixty times two columns of 24 MiB: the system hands out their pages each time, and once when kept."""

    def faults(word: str) -> int:
        command = [sys.executable, "-c", FAULTS, word]
        return int(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)

    pages = 2 * (24 << 20) // 4096
    assert faults("free") > pages
    assert faults("kept") < pages
