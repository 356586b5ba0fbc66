"""How exactly items leave when they are due: the pacer's modes and what others do, on one recorded arrival pattern.

    python benchmarks/bench_pacing.py [--json FILE] [--seconds S]

The starts of a recorded serving run's kernels, slowed down by an exact ratio to 1,000 and 10,000 items a second. Every
item's time is noted as the first thing that its emission does. Error is that time less the due time; bias is its mean.
KS is the greatest distance between the distributions of gaps asked for and gaps achieved; length is the time from the
first emission to the last, of what was asked for. core is processor time, of what one core had in the run.

`(the machine)` is what a pacer would get that does nothing but watch the clock: a loop notes when it did not run, and
each item leaves at its due time or when the loop runs again. No pacer can do better here.

Peers: `sleep(gap)` after each item, `loop.call_at` of asyncio, and tcpreplay (Debian's) with the same gaps in a capture
file, its frames looped back and timed by the kernel as they arrive; its error is against the latest start for which
nothing is early. A peer that may not run here (tcpreplay wants a raw socket) is left out, and says why.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT)]

import numpy as np  # noqa: E402 - run as a script, its folder is the path
import pyarrow.parquet as pq  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from benchmarks._table import Figure, show  # noqa: E402
from spanlite.replay.pacing.pacer import Pacer  # noqa: E402
from spanlite.replay.pacing.quiet import quiet  # noqa: E402
from spanlite.replay.pacing.rates import Rate  # noqa: E402
from spanlite.replay.pacing.schedule import Due, Schedule  # noqa: E402
from spanlite.replay.pacing.settings import Limit, Pace, parse_rate  # noqa: E402
from spanlite.replay.pacing.waiting import PreciseWaiter, SleepWaiter, TickWaiter, Waiter  # noqa: E402
from spanlite.runtime.clock import SystemClock  # noqa: E402

_RECORDING = _ROOT / "tests/data/serve_slice.parquet"
_CHUNK = 1024
_START_NS = 20_000_000
_AWAY_NS = 1_000
_SO_TIMESTAMPNS = 35
_EXPERIMENTAL = 0x88B5
_RATES = (1_000, 10_000)
_QPS = (500, 2_000, 8_000)

Int64 = NDArray[np.int64]
Play = Callable[[Int64], Int64]
"""Due times relative to the start → when each was emitted, likewise."""


def recorded(rate: int, seconds: float) -> Int64:
    """Due times of the first rate × seconds kernels of the run (fewer if it has not as many), at that mean rate."""
    starts = np.sort(pq.read_table(_RECORDING, columns=["start_ns"])["start_ns"].to_numpy())
    starts = starts[: int(rate * seconds)]
    length_ns = int(starts[-1] - starts[0])
    return Schedule(Pace(speed=Rate.steady(Fraction(length_ns * rate, (len(starts) - 1) * 10**9)))).take(starts)


def paced(make: Callable[[SystemClock], Waiter], *, realtime: bool = False) -> Play:
    """One of the pacer's modes."""

    def play(due_ns: Int64) -> Int64:
        at: list[int] = []
        clock = SystemClock()
        read_ns = clock.monotonic_ns
        chunks = (
            Due(due_ns[n : n + _CHUNK], range(n, min(n + _CHUNK, len(due_ns)))) for n in range(0, len(due_ns), _CHUNK)
        )

        def emit(_item: int) -> None:
            at.append(read_ns())

        with quiet(realtime=realtime) as granted:
            if realtime and not granted.realtime:
                raise PermissionError("no CAP_SYS_NICE")
            waiter = make(clock)
            start_ns = read_ns() + _START_NS
            summary = Pacer(waiter, emit).run(chunks, start_ns=start_ns)
        assert summary.sent == len(due_ns), summary
        return np.array(at, np.int64) - start_ns

    return play


def machine(due_ns: Int64) -> Int64:
    """What the machine leaves to any pacer: a loop that only watches the clock, where each item leaves at its time or,
    if the loop did not run then, when it runs again."""
    away: list[tuple[int, int]] = []
    with quiet():
        start_ns = last_ns = time.monotonic_ns()
        end_ns = start_ns + int(due_ns[-1])
        while last_ns < end_ns:
            now_ns = time.monotonic_ns()
            if now_ns - last_ns > _AWAY_NS:
                away.append((last_ns - start_ns, now_ns - start_ns))
            last_ns = now_ns
    begin, end = np.array([(0, 0), *away], np.int64).T
    place = np.searchsorted(begin, due_ns, side="right") - 1
    left: Int64 = np.maximum(due_ns, end[place])
    return left


def delta_sleep(due_ns: Int64) -> Int64:
    """Sleeps the gap after each item: what a loop without a schedule does."""
    at = []
    start_ns = time.monotonic_ns()
    for gap_ns in np.diff(due_ns, prepend=0).tolist():
        time.sleep(gap_ns / 1e9)
        at.append(time.monotonic_ns())
    return np.array(at, np.int64) - start_ns


def asyncio_timers(due_ns: Int64) -> Int64:
    """loop.call_at for each item, on an absolute schedule."""
    at: list[int] = []

    async def run() -> int:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        start_s = loop.time() + _START_NS / 1e9
        times = [start_s + ns / 1e9 for ns in due_ns.tolist()]

        def emit(item: int) -> None:
            at.append(time.monotonic_ns())
            if item + 1 < len(times):
                loop.call_at(times[item + 1], emit, item + 1)
            else:
                done.set()

        loop.call_at(times[0], emit, 0)
        await done.wait()
        return round(start_s * 1e9)

    return -asyncio.run(run()) + np.array(at, np.int64)


class TcpReplay:
    """tcpreplay over loopback: frames to a packet socket of ours, timed by the kernel as they arrive."""

    def __init__(self, timer: str) -> None:
        self._timer = timer

    def __call__(self, due_ns: Int64) -> Int64:
        ether = socket.htons(_EXPERIMENTAL)
        with (
            tempfile.TemporaryDirectory(prefix="spanlite-bench-") as name,
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, ether) as sink,
        ):
            sink.bind(("lo", _EXPERIMENTAL))
            sink.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
            sink.settimeout(0.5)
            capture = Path(name) / "items.pcap"
            capture.write_bytes(_capture(due_ns))
            command = ["tcpreplay", "-q", "-i", "lo", "-K", f"--timer={self._timer}", "--multiplier=1.0", str(capture)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
                at = _received(sink, len(due_ns), process)
                told = process.communicate(timeout=10)[0]
        if process.returncode or len(at) < len(due_ns):
            raise OSError(f"{len(at)} of {len(due_ns)} frames came: {told.strip()[-200:]}")
        times = np.array([ns for _, ns in sorted(at)], np.int64)
        return times - int((times - due_ns).min())


def _received(sink: socket.socket, count: int, process: subprocess.Popen[str]) -> list[tuple[int, int]]:
    """Number and arrival of each frame, until all are there or nobody sends any more."""
    at: list[tuple[int, int]] = []
    while len(at) < count:
        over = process.poll() is not None
        with contextlib.suppress(TimeoutError):
            data, ancillary, _, _ = sink.recvmsg(128, 128)
            second, nanosecond = struct.unpack("qq", ancillary[0][2])
            at.append((struct.unpack("!I", data[14:18])[0], second * 10**9 + nanosecond))
            continue
        if over:
            break
    return at


def _capture(due_ns: Int64) -> bytes:
    """A capture file (microseconds, Ethernet) of one frame an item, of the type kept free for experiments."""
    parts = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for item, due_us in enumerate((due_ns // 1000).tolist()):
        frame = bytes(12) + struct.pack("!HI", _EXPERIMENTAL, item) + bytes(42)
        parts.append(struct.pack("<IIII", 1 + due_us // 10**6, due_us % 10**6, len(frame), len(frame)) + frame)
    return b"".join(parts)


def judged(name: str, rate: int, play: Play, due_ns: Int64) -> dict[str, Figure]:
    """One run's figures."""
    begin_s, cpu_s = time.perf_counter(), time.process_time()
    at_ns = play(due_ns)
    core = (time.process_time() - cpu_s) / (time.perf_counter() - begin_s)
    assert len(at_ns) == len(due_ns)
    error_us = (at_ns - due_ns) / 1e3
    p50, p99 = np.quantile(error_us, [0.5, 0.99])
    return {
        "mode": name,
        "items_per_s": rate,
        "bias_us": float(error_us.mean()),
        "p50_us": float(p50),
        "p99_us": float(p99),
        "max_us": float(error_us.max()),
        "ks": distance(np.diff(due_ns), np.diff(at_ns)),
        "length": float((at_ns[-1] - at_ns[0]) / (due_ns[-1] - due_ns[0])),
        "core": core if not isinstance(play, TcpReplay) else "",
    }


def attempted(name: str, rate: int, play: Play, seconds: float) -> dict[str, Figure] | None:
    """One run's figures; None where it may not run here."""
    try:
        return judged(name, rate, play, recorded(rate, seconds))
    except OSError as error:
        print(f"{name} at {rate} items/s is left out: {error}")
        return None


def distance(wanted: Int64, got: Int64) -> float:
    """Kolmogorov and Smirnov's: the greatest distance between two samples' distribution functions."""
    at = np.concatenate([wanted, got])
    below = [np.searchsorted(np.sort(sample), at, side="right") / len(sample) for sample in (wanted, got)]
    return float(np.abs(below[0] - below[1]).max())


def rates(seconds: float) -> list[dict[str, Figure]]:
    """How exactly a limit is met by a recording that would be faster, in batches of 1 to 64 spans."""
    rows: list[dict[str, Figure]] = []
    for rate in _QPS:
        weights = 1 + np.arange(int(rate * seconds), dtype=np.int64) * 37 % 64
        weights = weights[: int(np.searchsorted(np.cumsum(weights), rate * seconds * 32.5))]
        limit = Limit(parse_rate(str(rate * 32)))
        due_ns = Schedule(Pace(speed=None, limit=limit)).take(np.zeros(len(weights), np.int64), weights)
        at_ns = paced(PreciseWaiter)(due_ns)
        took_s = (int(at_ns[-1]) - int(at_ns[0])) / 1e9
        got = int(weights[:-1].sum()) / took_s
        rows.append({"wanted_spans_per_s": rate * 32, "got": got, "error_percent": 100 * (got / (rate * 32) - 1)})
        rows[-1] |= {"seconds": took_s, "batches": len(weights)}
    return rows


def main() -> None:
    """All modes and peers at both rates, then limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=10, help="most of each run; the recording has 20,000 items")
    options = parser.parse_args()
    plays: dict[str, Play] = {
        "(the machine)": machine,
        "precise": paced(PreciseWaiter),
        "precise, realtime": paced(PreciseWaiter, realtime=True),
        "sleep": paced(SleepWaiter),
        "tick 1 ms": paced(TickWaiter),
        "sleep(gap)": delta_sleep,
        "asyncio call_at": asyncio_timers,
    }
    if shutil.which("tcpreplay"):
        plays |= {f"tcpreplay {timer}": TcpReplay(timer) for timer in ("gtod", "nano")}
    else:
        print("tcpreplay is left out: it is not installed")
    runs = [(name, rate, play) for rate in _RATES for name, play in plays.items()]
    rows = [row for run in runs if (row := attempted(*run, options.seconds))]
    limits = rates(options.seconds)
    show("Emission against due time; a recorded serving run's kernel starts", rows)
    show(f"A limit in spans a second over {options.seconds:g} s, batches of 1 to 64 spans, precise", limits)
    if options.json:
        _write(options.json, rows, limits)


def _write(path: Path, rows: list[dict[str, Figure]], limits: list[dict[str, Figure]]) -> None:
    path.write_text(json.dumps({"title": "pacing", "rows": rows, "limits": limits}, indent=1) + "\n")


if __name__ == "__main__":
    main()
