"""The table as a view of a topic."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract import catalogue
from spanlite.contract.columns import Kind
from spanlite.contract.errors import TransportError
from spanlite.contract.point_codec import encode_point, series_key
from spanlite.contract.points import Launch, Point, Series
from spanlite.exporters.families import families
from spanlite.exporters.prometheus import text
from spanlite.exporters.table import PointTable
from spanlite.exporters.view import PointView
from spanlite.runtime.clock import ManualClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer
from spanlite.transport.ports import Record
from tests.exporters.test_table import point_of

MakePoint = Callable[..., Point]
GEMM = Series("GPU-1", Kind.KERNEL, "gemm", name="void gemm()")
TOPIC = "points"


class Log:
    """A consumer of a list of records, in lots of the given sizes."""

    def __init__(self, records: list[Record], lots: list[int]) -> None:
        self._records = list(records)
        self._lots = list(lots)

    def poll(self, most: int, timeout_s: float) -> list[Record]:  # noqa: ARG002  # it never waits
        size = min(self._lots.pop(0) if self._lots else most, most)
        taken, self._records = self._records[:size], self._records[size:]
        return taken

    def commit(self) -> None:
        """Nothing is kept."""

    @property
    def at_end(self) -> bool:
        return not self._records


class Failing(Log):
    """A consumer that cannot go on."""

    def __init__(self, error: Exception) -> None:
        super().__init__([], [])
        self._error = error

    def poll(self, most: int, timeout_s: float) -> list[Record]:  # noqa: ARG002  # it never gets that far
        raise self._error


def record(point: Point, offset: int = 0) -> Record:
    """The point as it stands in a topic."""
    return Record(TOPIC, offset, 0, series_key(point.series), encode_point(point))


def read(records: list[Record], lots: list[int] | None = None) -> tuple[PointView, PointTable]:
    """A view that has read all of it."""
    log = Log(records, lots or [])
    table = PointTable(clock=ManualClock(2**62))
    view = PointView(log, table, caught_up=lambda: log.at_end)
    while not view.is_ready():
        view.step()
    table.set_counters(view.counters)
    return view, table


def counts(table: PointTable) -> dict[str, int]:
    """Executions by kernel."""
    return {row.key.what: row.point.count for row in table.snapshot().rows}


def number(view: PointView, spec: catalogue.MetricSpec) -> dict[str, float]:
    """An own metric by the value of its label."""
    return {"".join(labels.values()): value for labels, value in view.counters()[spec.name]}


def test_it_is_ready_when_the_end_that_it_saw_is_read(make_point: MakePoint) -> None:
    """Proves that records before the last do not make it ready, and that ready it stays."""
    log = Log([record(make_point(GEMM, [1000] * n, end_ns=n)) for n in (1, 2, 3)], [1, 1, 1])
    table = PointTable()
    view = PointView(log, table, caught_up=lambda: log.at_end)
    seen = []
    for _ in range(3):
        view.step()
        seen.append((view.is_ready(), counts(table)))
    assert seen == [(False, {"gemm": 1}), (False, {"gemm": 2}), (True, {"gemm": 3})]
    log._records.append(record(make_point(GEMM, [1000] * 4, end_ns=4)))
    assert view.is_ready()


def test_an_empty_topic_is_ready_at_once() -> None:
    """Proves that a new cluster is shown as one without work, not as broken."""
    view, table = read([])
    assert view.is_ready()
    assert counts(table) == {}


def test_poison_is_counted_by_reason_and_passed_over(make_point: MakePoint, caplog: pytest.LogCaptureFixture) -> None:
    """Proves that what stands around a broken record is shown, that all adds up, and that a flood is one line."""
    good = make_point(GEMM, [1000] * 3, end_ns=1)
    window = replace(good, cumulative=False)
    around = record(replace(good, series=GEMM._replace(kind=Kind.RANGE)))
    poison = Record(TOPIC, 7, 0, b"k", b"\xff\xffpoison")
    with caplog.at_level(logging.WARNING):
        view, table = read([poison, record(good), poison, poison, record(window), around])
    assert counts(table) == {"gemm": 3}
    assert number(view, catalogue.EXPORTER_REJECTED) == {"not_protobuf": 3, "window": 1, "range": 1}
    assert number(view, catalogue.EXPORTER_RECORDS) == {"": 6}
    assert sum(table.snapshot().offered.values()) == 1
    assert [line for line in caplog.messages if "record 7 of topic points" in line and "not_protobuf" in line]
    assert len(caplog.messages) <= 5


def test_a_tombstone_takes_its_place_among_the_points(make_point: MakePoint) -> None:
    """Proves that order within one poll counts: what comes after a tombstone begins anew, what comes before is gone."""
    tombstone = Record(TOPIC, 0, 0, series_key(GEMM), b"")
    before, after = make_point(GEMM, [1000] * 5, end_ns=1), make_point(GEMM, [1000], end_ns=2)
    view, table = read([record(before), tombstone])
    assert counts(table) == {}
    assert number(view, catalogue.EXPORTER_TOMBSTONES) == {"": 1}
    other = GEMM._replace(launch=Launch(grid=(9, 1, 1)))
    _, table = read([record(make_point(other, [1000] * 2, end_ns=1)), record(before), tombstone, record(after)])
    assert sum(row.point.count for row in table.snapshot().rows) == 2 + 5 + 1


_KERNELS = [GEMM._replace(kernel=f"k{n}", launch=Launch(grid=(n % 2, 1, 1)), stage=f"s{n % 2}") for n in range(4)]
_ENTRIES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 30), st.integers(0, 2)), min_size=1, max_size=30
)


@given(_ENTRIES, st.lists(st.integers(1, 7), max_size=20))
def test_replicas_say_the_same_to_the_byte(entries: list[tuple[int, int, int, int]], lots: list[int]) -> None:
    """Proves it for a log of points, repetitions, epochs and tombstones that two exporters read in other lots."""
    records = []
    for which, count, end_ns, epoch in entries:
        point = replace(point_of(_KERNELS[which], count=max(count, 1), end_ns=end_ns), epoch=epoch)
        records.append(record(point) if count else Record(TOPIC, 0, 0, series_key(point.series), b""))
    pages = []
    for view, table in (read(records), read(records, lots)):
        page = text(families(table.snapshot())).decode()
        assert number(view, catalogue.EXPORTER_RECORDS) == {"": len(records)}
        pages.append([line for line in page.splitlines() if "spanlite_exporter_" not in line])
    assert pages[0] == pages[1]


def test_the_thread_reads_until_it_is_stopped(make_point: MakePoint) -> None:
    """Proves the way of the command: start, wait, stop; what was sent meanwhile is shown."""
    broker = MemoryBroker()
    table = PointTable()
    view = PointView(MemoryConsumer(broker, TOPIC), table, caught_up=lambda: table.loaded)
    view.start()
    point = make_point(GEMM, [1000] * 2)
    broker.put(TOPIC, series_key(GEMM), encode_point(point), 0)
    while not counts(table):
        assert not view.wait(0.01)
    view.stop()
    assert view.wait(0)
    assert counts(table) == {"gemm": 2}


def test_an_error_of_the_topic_ends_it_and_is_told() -> None:
    """Proves that a view that cannot go on does not look like a quiet topic: the waiter gets the error."""
    view = PointView(Failing(TransportError("points: no such topic")), PointTable(), caught_up=lambda: False)
    view.start()
    with pytest.raises(TransportError, match="no such topic"):
        view.wait(10)
    view.stop()
    assert not view.is_ready()


def test_an_error_that_nobody_foresaw_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    """Proves that a bug in the thread is seen."""
    view = PointView(Failing(ZeroDivisionError()), PointTable(), caught_up=lambda: False)
    view.start()
    with pytest.raises(ZeroDivisionError):
        view.wait(10)
    assert "reading points has failed" in caplog.messages


def test_stopping_what_was_not_started_is_nothing() -> None:
    """Proves that a port that is taken is told by its own error."""
    view = PointView(Log([], []), PointTable(), caught_up=lambda: True)
    view.stop()
    assert not view.is_ready()
