"""Spans per core-second beside the OpenTelemetry Collector's span_metrics connector, on the same recorded spans.

    make bench-otel        (or, once that has built the collector:)
    python benchmarks/otel_collector/bench.py [--json FILE] [--rounds N]

The kernels and memory sets of a recorded serving run, on 16 GPUs, again and again. The collector (0.165, main.go
here) gets them as OTLP over gRPC, 8,192 spans a request, serialised before the clock starts; ours as an agent's
SpanBatch messages over a socket, into both stages of the metrics job with their state in memory.
`spans_per_core_second` is by CPU time: of the collector's own process from the first request of a round to its last
answer, so the sender is free; of ours of the whole process, its sender included. All are warmed up, then take turns
round by round, so that they meet the same machine; `least` and `most` are `spanlite / it` of single rounds.

`series` of a GPU: the collector's by kernel and stage, and once more by the launch configuration too, which tells ours
apart. `tuned` is the first of these on one thread and with less garbage collection, the best of the settings that were
tried; `receiving alone` hands its spans to nobody. Every count and sum on both sides is compared with one made span by
span from the recording: no figure comes of a run that lost a span.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(_ROOT)]

import zstandard  # noqa: E402

from benchmarks._table import Figure, show  # noqa: E402 - run as a script, its folder is the path
from benchmarks.otel_collector import otlp  # noqa: E402
from benchmarks.otel_collector.collector import Collector  # noqa: E402
from benchmarks.otel_collector.otlp import LAUNCH, STAGE, Label, Work  # noqa: E402
from benchmarks.otel_collector.ours import Ours  # noqa: E402
from spanlite.agent.batcher import BATCH_ROWS  # noqa: E402
from tests.stack import load  # noqa: E402

_GPUS = 16
_WARM_UP = 2
_BRIEF, _FULL = (STAGE,), (STAGE, LAUNCH)
_ROUNDS = 10


@dataclass
class Side:
    """One that is timed.

    Attributes:
        play: takes all spans of the round of a number and returns when they are counted.
        clock: CPU seconds so far.
        cpu_s, wall_s: of each timed round.
    """

    what: str
    series: int
    play: Callable[[int], None]
    clock: Callable[[], float]
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)


def main(path: Path | None, rounds: int) -> None:
    """All sides by turns, the comparisons, both tables."""
    rounds_in_all = _WARM_UP + rounds
    expected = otlp.counted(load.recorded())
    messages = list(load.messages(_GPUS, rounds_in_all, rows=BATCH_ROWS))
    gpus = sorted({message.batch.gpus[0].uuid for message in messages})
    values = [message.value for message in messages]
    spans = sum(work.calls for work in expected.values()) * _GPUS
    brief, full = (otlp.requests(load.recorded(), gpus, attributes) for attributes in (_BRIEF, _FULL))
    with (
        tempfile.TemporaryDirectory(prefix="spanlite-bench-") as name,
        Collector(Path(name) / "brief", _BRIEF) as by_stage,
        Collector(Path(name) / "tuned", _BRIEF, GOMAXPROCS="1", GOGC="400") as tuned,
        Collector(Path(name) / "full", _FULL) as by_launch,
        Collector(Path(name) / "receiving", None) as receiving,
    ):
        ours = Ours()
        sides = [
            Side("spanlite", len(expected), _ours(ours, values, rounds_in_all), time.process_time),
            _peer("span_metrics", by_stage, brief, len(otlp.merged(expected, _BRIEF))),
            _peer("span_metrics, tuned", tuned, brief, len(otlp.merged(expected, _BRIEF))),
            _peer("span_metrics, launch too", by_launch, full, len(otlp.merged(expected, _FULL))),
            _peer("receiving alone", receiving, brief, 0),
        ]
        _take_turns(sides, rounds)
        _check_ours(ours, expected, gpus, rounds_in_all)
        for collector, attributes in ((by_stage, _BRIEF), (tuned, _BRIEF), (by_launch, _FULL)):
            made = collector.await_calls(spans * rounds_in_all)
            _check_peer(made, otlp.merged(expected, attributes), gpus, rounds_in_all)
    title = f"Spans to metrics by CPU time: {spans * rounds:,} spans of {_GPUS} GPUs to each"
    rows = [_row(side, sides[0], spans) for side in sides]
    show(title, rows)
    wires = [
        _wire("spanlite", values, spans * rounds_in_all),
        _wire("span_metrics", brief, spans),
        _wire("span_metrics, launch too", full, spans),
    ]
    show("Bytes a span on the wire; ours is compressed as it is sent", wires)
    if path:
        ratio = {str(row["what"]): row["spanlite / it"] for row in rows[1:]}
        path.write_text(json.dumps({"title": title, "rows": rows, "wire": wires, "ratio": ratio}, indent=1) + "\n")


def _ours(ours: Ours, values: Sequence[bytes], rounds_in_all: int) -> Callable[[int], None]:
    each = len(values) // rounds_in_all

    def play(number: int) -> None:
        ours.play(values[number * each : (number + 1) * each])
        if number == rounds_in_all - 1:
            ours.finish()

    return play


def _peer(what: str, collector: Collector, requests: Sequence[bytes], series: int) -> Side:
    """The same requests in each round: the connector does not care when a span was."""
    return Side(what, series, lambda _number: collector.send(requests), collector.cpu_s)


def _take_turns(sides: Sequence[Side], rounds: int) -> None:
    for side in sides:
        for number in range(_WARM_UP):
            side.play(number)
    for number in range(_WARM_UP, _WARM_UP + rounds):
        for side in sides:
            begun_s, began_s = time.perf_counter(), side.clock()
            side.play(number)
            side.cpu_s.append(side.clock() - began_s)
            side.wall_s.append(time.perf_counter() - begun_s)
        print(f"round {number}:", *(f"{side.cpu_s[-1]:.2f}" for side in sides), "s", file=sys.stderr, flush=True)


def _check_ours(ours: Ours, expected: Mapping[Label, Work], gpus: Sequence[str], rounds: int) -> None:
    made: dict[tuple[str, Label], Work] = {}
    for point in ours.made():
        series = point.series
        at = (series.gpu_uuid, Label(series.kernel, series.stage, otlp.launch_text(series.launch)))
        assert at not in made, f"two series are one by {at}"
        assert int(point.bucket_count.sum()) == point.count, f"the buckets of {at} do not add up"
        made[at] = Work(point.count, point.sum_ns)
    each = {label: Work(work.calls * rounds, work.sum_ns * rounds) for label, work in expected.items()}
    assert made == {(gpu, label): work for gpu in gpus for label, work in each.items()}, "ours counted otherwise"


def _check_peer(
    made: Mapping[tuple[str, Label], tuple[int, float]],
    expected: Mapping[Label, Work],
    gpus: Sequence[str],
    rounds: int,
) -> None:
    assert made.keys() == {(gpu, label) for gpu in gpus for label in expected}, "the collector has other series"
    for (gpu, label), (calls, seconds) in made.items():
        work = expected[label]
        assert calls == work.calls * rounds, f"{gpu} {label}: {calls} calls of {work.calls * rounds}"
        assert math.isclose(seconds, work.sum_ns * rounds / 1e9, rel_tol=1e-9), f"{gpu} {label}: {seconds} s"


def _row(side: Side, ours: Side, spans: int) -> dict[str, Figure]:
    ratios = [theirs / own for theirs, own in zip(side.cpu_s, ours.cpu_s, strict=True)]
    return {
        "what": side.what,
        "series": side.series,
        "cpu_s": sum(side.cpu_s),
        "wall_s": sum(side.wall_s),
        "spans_per_core_second": spans * len(side.cpu_s) / sum(side.cpu_s),
        "spanlite / it": sum(side.cpu_s) / sum(ours.cpu_s),
        "least": min(ratios),
        "most": max(ratios),
    }


def _wire(what: str, messages: Iterable[bytes], spans: int) -> dict[str, Figure]:
    """Each message compressed by itself, as gRPC does, at the usual levels."""
    zstd = zstandard.ZstdCompressor(level=3)
    plain = gzipped = zipped = 0
    for message in messages:
        plain += len(message)
        gzipped += len(gzip.compress(message, 6))
        zipped += len(zstd.compress(message))
    return {"what": what, "as sent": plain / spans, "gzip": gzipped / spans, "zstd": zipped / spans}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="how often the recording is sent (%(default)s)")
    given = parser.parse_args()
    main(given.json, given.rounds)
