"""Raw CUPTI bytes to SpanBatch bytes in one thread: spans a second, where the time goes, bytes a span on the wire.

    SPANLITE_RECORDINGS=FOLDER python benchmarks/bench_agent.py [--json FILE]

Takes the recordings (*.bin.xz) of that folder or of its folder `buffers`, else those in tests/data/h200. A recording
comes as buffers of 8 MiB, CUPTI's usual size, and runs through what the agent does between its socket and its
transport: decoding, checks, attribution to ranges and traces, occupancy, dictionaries, batches of at most 65,536 spans,
zstd. Bytes a span hold everything: headers, names, ids of spans, parents and traces. Best of seven plays; the steps are
those of the best one. `stages` has 29 records of calls, ids and markers a span, which is what its time goes to.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / part) for part in ("proto", "core", "agent"))]

from benchmarks._table import Figure, json_path, show  # noqa: E402 - the source roots come first
from spanlite.agent import assembly, batcher, process, tracker  # noqa: E402
from spanlite.agent.counts import AgentCounts  # noqa: E402
from spanlite.agent.feeder import hello  # noqa: E402
from spanlite.agent.frames import Clock, Frame, Header, pack_clock, pack_names, pack_text  # noqa: E402
from spanlite.agent.process import TracedProcess  # noqa: E402
from spanlite.agent.recording import Recording, chunks, read_recording  # noqa: E402
from spanlite.contract import catalogue  # noqa: E402
from spanlite.contract.codec import decode_batch, encode_batch  # noqa: E402
from spanlite.runtime.clock import ManualClock  # noqa: E402

_BUFFER_BYTES = 8 << 20
_RUNS = 7
_STEPS: dict[str, tuple[tuple[object, str], ...]] = {
    "decode": ((process, "decode"),),
    "check, shapes": ((process, "launches_of"),),
    "attribute": ((tracker.Tracker, "feed"),),
    "dictionaries": ((assembly.Assembly, "columns"), (process, "in_start_order")),
    "cut": ((batcher, "compact"),),
}
"""Functions whose times make up a step; none calls another of them."""


def recordings() -> list[Path]:
    """Those that the environment names, else the project's own."""
    named = Path(os.environ.get("SPANLITE_RECORDINGS", ""))
    for folder in (named, named / "buffers"):
        found = sorted(folder.glob("*.bin.xz"))
        if found:
            return found
    return sorted((_ROOT / "tests" / "data" / "h200").glob("*.bin.xz"))


def frames(recording: Recording) -> list[tuple[Frame, bytes]]:
    """What a collector would have sent after HELLO."""
    before, after = recording.unix_ns
    clock = Clock(recording.cupti_ts, (before + after) // 2, (after - before) // 2)
    buffers = [(Frame.BUFFER, bytes(piece)) for piece in chunks(recording, _BUFFER_BYTES)]
    return [(Frame.CLOCK, pack_clock(clock)), (Frame.NAMES, pack_names(recording.names)), *buffers]


def play(recording: Recording, sent: list[tuple[Frame, bytes]], times: dict[str, float]) -> tuple[float, list[bytes]]:
    """One run of a new process; seconds and values, the seconds of encoding added to `times`."""
    said = pack_text(hello(recording, {"workload": recording.scenario, "host.name": "recorded"}))
    counts, values = AgentCounts(), []
    begin = time.perf_counter()
    header = Header(Frame.HELLO, len(said), 0)
    traced = TracedProcess.from_hello(header, said, 1, ManualClock(recording.unix_ns[1]), counts)

    def batches() -> Iterator[Any]:
        for sequence, (kind, payload) in enumerate(sent, 1):
            yield from traced.take(Header(kind, len(payload), sequence), payload)
        yield from traced.finish()

    for batch in batches():
        started = time.perf_counter()
        values.append(encode_batch(batch))
        times["encode, zstd"] = times.get("encode, zstd", 0.0) + time.perf_counter() - started
    seconds = time.perf_counter() - begin
    assert not counts.by_label(catalogue.AGENT_SPANS_DROPPED)
    return seconds, values


@contextmanager
def timed_steps(times: dict[str, float]) -> Iterator[None]:
    """Adds the seconds spent in the functions of each step."""

    def timed(step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            result = call(*arguments, **named)
            times[step] = times.get(step, 0.0) + time.perf_counter() - begin
            return result

        return run

    with ExitStack() as stack:
        for step, places in _STEPS.items():
            for owner, name in places:
                stack.enter_context(patch.object(owner, name, timed(step, getattr(owner, name))))
        yield


def measure(path: Path) -> dict[str, Figure]:
    """The figures of one recording."""
    recording = read_recording(path)
    sent = frames(recording)
    best_s = float("inf")
    best_times: dict[str, float] = {}
    values: list[bytes] = []
    for _ in range(_RUNS):
        times: dict[str, float] = {}
        with timed_steps(times):
            seconds, values = play(recording, sent, times)
        if seconds < best_s:
            best_s, best_times = seconds, times
    spans = sum(len(decode_batch(value).columns) for value in values)
    steps = {f"{step} ms": 1e3 * best_times[step] for step in (*_STEPS, "encode, zstd")}
    return {
        "recording": path.name.partition(".")[0],
        "spans": spans,
        "records": sum(recording.counts.values()),
        "MiB": len(recording.data) / 2**20,
        "ms": 1e3 * best_s,
        "M spans/s": spans / best_s / 1e6,
        "M records/s": sum(recording.counts.values()) / best_s / 1e6,
        "B/span": sum(map(len, values)) / spans,
        **steps,
        "other ms": 1e3 * (best_s - sum(best_times.values())),
    }


def main() -> None:
    """Measures every recording."""
    path = json_path("raw CUPTI bytes to SpanBatch bytes in one thread")
    show("agent: CUPTI buffers to batches, one thread", [measure(one) for one in recordings()], path)


if __name__ == "__main__":
    main()
