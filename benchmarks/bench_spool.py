"""Frames to a broker by way of the spool: spans a second taken and delivered, memory, with and without the broker.

    SPANLITE_RECORDINGS=FOLDER python benchmarks/bench_spool.py [--json FILE]

Plays a recording (serve-cupti130500 where it is there) many times into an agent of this process, at full speed, over
the unix socket. `direct` has no spool. `spool` writes every batch to disk and hands it on from memory; `fsync` says
how. `away` is a broker that takes nothing while the recordings are played, and then everything: `drain` is what it is
sent per second afterwards, read back from disk. The broker is a producer that reports at once, so the figures are the
agent's alone. RSS is this process's at the end of the playing, with a heap for all threads as the agent has it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / part) for part in ("proto", "core", "agent"))]

from benchmarks._table import Figure, json_path, show  # noqa: E402 - the source roots come first
from spanlite.agent.backoff import Backoff  # noqa: E402
from spanlite.agent.counts import AgentCounts  # noqa: E402
from spanlite.agent.feeder import feed  # noqa: E402
from spanlite.agent.recording import Recording, read_recording  # noqa: E402
from spanlite.agent.sender import Sender  # noqa: E402
from spanlite.agent.server import AgentServer  # noqa: E402
from spanlite.agent.spool.settings import Fsync, SpoolSettings  # noqa: E402
from spanlite.agent.spool.spool import Spool  # noqa: E402
from spanlite.contract import catalogue  # noqa: E402
from spanlite.runtime.allocator import bound_arenas  # noqa: E402
from spanlite.runtime.clock import SystemClock  # noqa: E402

_TURNS = 20
_Told = Callable[[str | None], None]


class _Broker:
    """Reports at once: stored, or timed out while it is away."""

    def __init__(self) -> None:
        self.away = threading.Event()
        self.bytes = 0

    def send(self, topic: str, key: bytes, value: bytes, timestamp_ms: int, on_delivery: _Told) -> None:  # noqa: ARG002
        if self.away.is_set():
            on_delivery("timeout")
            return
        self.bytes += len(value)
        on_delivery(None)

    def flush(self, timeout_s: float) -> int:  # noqa: ARG002
        return 0


def recording() -> Recording:
    """The largest of the project's, or one of the folder that the environment names."""
    named = Path(os.environ.get("SPANLITE_RECORDINGS", ""))
    folders = (named, named / "buffers", _ROOT / "tests" / "data" / "h200")
    found = next(sorted(one.glob("*.bin.xz")) for one in folders if list(one.glob("*.bin.xz")))
    return read_recording(next((one for one in found if one.name.startswith("serve-cupti130500")), found[0]))


def rss_mib() -> float:
    """Memory of this process now."""
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def measure(name: str, source: Recording, fsync: Fsync | None, *, away: bool) -> dict[str, Figure]:
    """The figures of one way."""
    broker, counts, clock = _Broker(), AgentCounts(), SystemClock()
    with tempfile.TemporaryDirectory(dir=_ROOT / "build") as folder:
        sender: Sender | None = None
        if fsync is not None:
            spool = Spool(Path(folder) / "spool", counts, SpoolSettings(fsync=fsync))
            sender = Sender(spool, broker, clock, counts, backoff=Backoff(0.01, 0.1))
            sender.start()
        server = AgentServer(Path(folder) / "agent.sock", sender or broker, clock, counts)
        server.start()
        if away:
            broker.away.set()
        begin = time.perf_counter()
        for turn in range(_TURNS):
            before, after = source.unix_ns
            feed(replace(source, unix_ns=(before + turn, after + turn)), Path(folder) / "agent.sock", clock=clock)
        taken_s = time.perf_counter() - begin
        memory = rss_mib()
        received = counts.value(catalogue.AGENT_SPANS_RECEIVED)
        waiting = sender.spool.state() if sender else None
        broker.away.clear()
        resumed = time.perf_counter()
        left = sender.flush(60) if sender else 0
        ended = time.perf_counter()
        server.stop()
        if sender:
            sender.stop(0)
        assert left == 0
        assert counts.value(catalogue.AGENT_SPANS_SENT) == received > 0
    return {
        "way": name,
        "spans": received,
        "M spans/s taken": received / taken_s / 1e6,
        "M spans/s delivered": received / (ended - begin) / 1e6,
        "M spans/s drain": received / (ended - resumed) / 1e6 if away else "",
        "MiB on disk": waiting.bytes / 2**20 if waiting else 0.0,
        "MiB RSS": memory,
    }


def main() -> None:
    """Measures every way."""
    path = json_path("frames to a broker by way of the spool")
    bound_arenas()
    source = recording()
    (_ROOT / "build").mkdir(exist_ok=True)
    measure("warm up", source, None, away=False)
    rows = [measure("direct", source, None, away=False)]
    rows += [measure(f"spool, fsync {one.value}", source, one, away=False) for one in Fsync]
    rows.append(measure("spool, broker away", source, Fsync.INTERVAL, away=True))
    show("agent: frames to broker, by way of the spool", rows, path)


if __name__ == "__main__":
    main()
