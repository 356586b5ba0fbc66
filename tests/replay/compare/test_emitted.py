"""When messages were let go, as their headers say, beside when they were to go: to the nanosecond."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.batch import Batch
from spanlite.contract.columns import TRACE
from spanlite.pipeline.archive.read import read_batches
from spanlite.pipeline.archive.store import open_store
from spanlite.replay.compare.comparing import Replayed, compare
from spanlite.replay.compare.figures import EMITTED, Report
from spanlite.replay.compare.gates import parse_gate, said
from spanlite.replay.compare.report_html import page
from spanlite.replay.compare.sides import Came
from spanlite.replay.compare.sources import came_in_topic, producers_of
from spanlite.replay.compare.told import Told
from spanlite.replay.moments import Moment
from spanlite.replay.paced import Pacing
from spanlite.replay.pacing.late import LatePolicy
from spanlite.replay.pacing.waiting import SleepWaiter
from spanlite.replay.prepare import Replay, Settings
from spanlite.replay.running import run_replay
from spanlite.replay.sinks import TopicSink
from spanlite.runtime.clock import ManualClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer
from spanlite.transport.ports import Record
from tests.replay.compare import brute
from tests.replay.compare.made import emitted, told

_BASE_NS = 1_700_000_000_000_000_123
_SPEED_4 = {"speed": "4", "by": "arrival"}


@pytest.fixture
def spaced(small: list[Batch]) -> list[Batch]:
    """Twelve batches, number n sent 4 n² ms after the first: due n² ms after it at a speed of 4."""
    first = small[0].emit_ns
    return [replace(batch, emit_ns=first + 4_000_000 * at * at) for at, batch in enumerate(small[:12])]


def _report(original: list[Batch], run: Told, moments: list[Moment | None], stored_ms: int | None = None) -> Report:
    pairs = zip(emitted(original, run), moments, strict=True)
    came = [Came(batch, 10, time_ms=stored_ms, moment=moment) for batch, moment in pairs]
    return compare(run, lambda: original, Replayed("kafka:t", "topic", came), where="traces")


def test_emissions_are_told_to_the_nanosecond(spaced: list[Batch]) -> None:
    """Lateness from 1 ns to 12 ns, gaps from them: each figure is that of its definition, whenever they arrived."""
    due = [1_000_000 * at * at for at in range(12)]
    late = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 12]
    out = [at + by for at, by in zip(due, late, strict=True)]
    moments: list[Moment | None] = [Moment(_BASE_NS + a, _BASE_NS + b) for a, b in zip(due, out, strict=True)]
    report = _report(spaced, told(pacing=_SPEED_4), moments, stored_ms=7)
    values = report.figures.values
    ours, theirs = ([b - a for a, b in pairwise(side)] for side in (due, out))
    assert values["emitted_late_mean_ns"] == pytest.approx(sum(late) / 12)
    assert (values["emitted_late_p50_ns"], values["emitted_late_max_ns"]) == (4.5, 12)
    assert values["emitted_late_p99_ns"] == pytest.approx(9 + 0.89 * 3)
    assert values["emitted_gap_p50_original_ns"] == 11_000_000
    assert values["emitted_gap_p50_replay_ns"] == sorted(theirs)[5]
    assert values["emitted_ks"] == pytest.approx(brute.ks(ours, theirs))
    assert values["emitted_w1_ns"] == pytest.approx(brute.w1(ours, theirs))
    assert values["emitted_due_spread_ns"] == 0
    assert report.emissions == {"by": "headers", "messages": 12}
    assert report.arrivals == {"by": "broker", "resolution_ns": 1_000_000}
    assert values["gap_p99_replay_ns"] == 0  # all arrived in one millisecond
    gate = said(parse_gate("emitted_late_max_ns<13").judged(report))
    assert gate == "ok      emitted_late_max_ns<13: 12 (by the headers of the run)"
    assert "Gaps between emissions" in page(report)
    assert "From due to emitted" in page(report)


def test_a_due_time_that_the_schedule_does_not_give_is_told(spaced: list[Batch]) -> None:
    """One header of twelve says 70 ns too late: that is the spread, though the message left on that time."""
    due = [_BASE_NS + 1_000_000 * at * at for at in range(12)]
    due[5] += 70
    values = _report(spaced, told(pacing=_SPEED_4), [Moment(at, at) for at in due]).figures.values
    assert (values["emitted_due_spread_ns"], values["emitted_late_max_ns"]) == (70, 0)


@pytest.mark.parametrize(
    ("pacing", "missing", "why"),
    [
        (_SPEED_4, 1, "only 11 of 12 messages say when they were let go"),
        (_SPEED_4, 12, "no message says when it was let go: only records of a topic do, of a run with a pace"),
        ({"speed": "max", "by": "arrival"}, 0, "the manifest tells of no pace"),
    ],
)
def test_what_not_all_headers_tell_is_not_told(spaced: list[Batch], pacing: Any, missing: int, why: str) -> None:
    """Some without headers, all without, or a run without a pace: no figure, and the reason."""
    moments = [None if at < missing else Moment(at, at) for at in range(12)]
    report = _report(spaced, told(pacing=pacing), moments)
    assert {report.figures.unavailable[name] for name in EMITTED} == {why}
    assert [name for name in EMITTED if report.figures.value(name) is not None] == []
    assert report.emissions == {"by": None, "messages": 0}


class _Topic:
    """All that is in a topic of memory."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._consumer = MemoryConsumer(broker, "t")
        self.caught_up = False

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        records = self._consumer.poll(most, min(timeout_s, 0))
        self.caught_up = len(records) < most
        return records


def _run(root: Path, settings: dict[str, Any], pacing: dict[str, Any]) -> Report:
    """A run on a clock that moves by itself, compared with its original."""
    clock, broker = ManualClock(_BASE_NS), MemoryBroker()
    replay = Replay(ArchiveFiles(str(root)), Settings(run="r", seed=3, **settings), now_ns=0, count_traces=True)
    facts = {"remapped": settings.get("ids") == "remap", "order": replay.settings.order, "loops": replay.loops}
    run = told(**facts, period_ns=replay.period_ns, pacing=pacing)
    assert run.pace is not None
    how = Pacing(run.pace, SleepWaiter(clock), LatePolicy(), counts=pacing.get("qps_of", "batches"))
    run_replay(replay, TopicSink(MemoryProducer(broker), "t"), clock, pacing=how)
    came = came_in_topic(_Topic(broker), clock, stored_times=False)
    store = open_store(str(root))
    producers = producers_of(ArchiveFiles(str(root)))
    replayed = Replayed("kafka:t", "topic", came)
    return compare(run, lambda: read_batches(store), replayed, where="traces", producers=producers)


@pytest.mark.parametrize("order", ["arrival", "start"])
@pytest.mark.parametrize("settings", [{}, {"ids": "remap", "loops": 3}])
@pytest.mark.parametrize(
    "pacing",
    [
        {"speed": "0.7"},
        {"speed": "3", "gap_cap": "2ms"},
        {"speed": "max", "qps": "2000", "qps_of": "traces", "burst": 3},
        {"speed": "1", "qps": "150", "qps_of": "traces"},
        {"speed": "2", "qps": "100..50000/1s", "qps_of": "spans"},
    ],
)
def test_due_times_reckoned_again_are_those_of_the_run(
    archive: Path, pacing: dict[str, Any], settings: dict[str, Any], order: str
) -> None:
    """Whatever the pace, the limit and what it counts, in any order and turn: no message was due a nanosecond off."""
    values = _run(archive, {**settings, "order": order}, {**pacing, "by": order}).figures.values
    for name in ("missing", "emitted_due_spread_ns", "emitted_late_max_ns", "emitted_ks", "emitted_w1_ns"):
        assert values[name] == 0, name
    assert values["emitted_gap_p99_original_ns"] > 0


def _traced(batch: Batch, at: int) -> Batch:
    """The batch with its spans in traces n, n + 1 and n + 2, n being at² / 4; of the last those of the one before."""
    traces = np.zeros(3, dtype=TRACE)
    for number in range(3):
        traces["id"][number] = (min(at * at // 4, 9) + number + 1).to_bytes(16, "big")
    of = np.arange(len(batch.columns), dtype=np.int32) % 3
    return replace(batch, columns=replace(batch.columns, traces=traces, trace=of))


@pytest.mark.parametrize("order", ["arrival", "start"])
def test_a_limit_by_traces_waits_for_those_that_begin(small: list[Batch], order: str) -> None:
    """At 100 traces a second each message is due 10 ms a trace after those that began before it, counted by hand.

    Eight batches have traces 0-2, 0-2, 1-3, 2-4, 4-6, 6-8, 9-11 and 9-11; with the last one first by starts, it begins
    three and what follows waits for those, though it is read last.
    """
    batches = [_traced(batch, at) for at, batch in enumerate(small[:8])]
    batches = [replace(batch, emit_ns=batches[0].emit_ns + at) for at, batch in enumerate(batches)]
    began = {"arrival": [0, 3, 3, 4, 5, 7, 9, 12], "start": [3, 6, 6, 7, 8, 10, 12, 0]}[order]
    if order == "start":
        first = min(int(batch.columns.start_ns.min()) for batch in batches)
        for at, batch in enumerate(batches):  # the recorded starts of small batches overlap
            shift = first + at % 7 * 10**9 - (at == 7) - int(batch.columns.start_ns.min())
            columns = replace(batch.columns, start_ns=batch.columns.start_ns + shift)
            batches[at] = replace(batch, columns=columns)
    run = told(order=order, pacing={"speed": "max", "by": order, "qps": "100", "qps_of": "traces"})
    due = [_BASE_NS + 10_000_000 * traces for traces in began]
    report = _report(batches, run, [Moment(at, at) for at in due], stored_ms=1)
    values = report.figures.values
    for name in ("emitted_due_spread_ns", "emitted_ks", "emitted_w1_ns", "emitted_late_max_ns"):
        assert values[name] == 0, name
    assert values["stored_late_max_ns"] == 120_000_000  # all stored at once, the last of them was due twelve later
    gaps = sorted(10_000_000 * (b - a) for a, b in pairwise(sorted(began)))
    assert values["gap_p50_original_ns"] == values["emitted_gap_p50_original_ns"] == gaps[3]
