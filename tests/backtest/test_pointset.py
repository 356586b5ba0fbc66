"""Points as columns: folded into coarser windows, added up, written and read, all of it exactly."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.errors import UsageError
from spanlite.contract.points import Point, Series, point_json
from spanlite.pipeline.backtest.diff import compare
from spanlite.pipeline.backtest.files import read_points, write_columns, write_lines
from spanlite.pipeline.backtest.run import backtest
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import merge
from spanlite.pipeline.points import Totals
from spanlite.pipeline.pointset import PointSet, point_set
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.windows import WindowPolicy
from tests.backtest.conftest import Live, told
from tests.pipeline.conftest import Span, make_batch, plain, span_lists


def of_spans(spans: Sequence[Span], width_ns: int) -> PointSet:
    """Points of spans, whatever these claim."""
    registry = SeriesRegistry()
    batches = [make_batch(spans)] if spans else []
    return PointSet(width_ns, registry, merge([fold_batch(each, width_ns, registry) for each in batches])).ordered()


@settings(max_examples=25)
@given(span_lists(), st.sampled_from([1, 10, 97]), st.integers(1, 50))
def test_coarser_windows_are_those_of_the_spans(spans: list[Span], width_ns: int, times: int) -> None:
    """Points folded afterwards would differ from those that a wider window would have given."""
    found = of_spans(spans, width_ns).coarser(width_ns * times)
    assert plain(found.points()) == plain(of_spans(spans, width_ns * times).points())


@settings(max_examples=25)
@given(span_lists(), st.sampled_from([10, 97]))
def test_totals_are_those_that_the_pipeline_tells(spans: list[Span], width_ns: int) -> None:
    """A diff against a topic of cumulative points would compare with something else than the job's."""
    registry = SeriesRegistry()
    batches = [make_batch(spans)] if spans else []
    rows = merge([fold_batch(batch, width_ns, registry) for batch in batches])
    expected = told(replace(point, cumulative=True) for point in Totals(width_ns, registry).add(rows))
    total = of_spans(spans, width_ns).total()
    assert told(_cumulative(total)) == expected
    assert total.total() is total


def _cumulative(found: PointSet) -> Iterable[Point]:
    """Points of a cumulative set, by way of windows of 1 ns."""
    assert found.begin_ns is not None
    assert found.end_ns is not None
    points = replace(found, width_ns=1).points()
    for point, begin, end in zip(points, found.begin_ns.tolist(), found.end_ns.tolist(), strict=True):
        yield replace(point, window_start_ns=begin, window_end_ns=end, cumulative=True)


@settings(max_examples=25)
@given(span_lists())
def test_points_as_objects_and_back_are_the_same(spans: list[Span]) -> None:
    """Points of a topic would be read as other columns than they were."""
    found = of_spans(spans, 10)
    if len(found):
        assert told(point_set(found.points()).points()) == told(found.points())


def test_a_width_that_does_not_divide_is_refused() -> None:
    """Windows would be cut in two, and counts land in the wrong one."""
    found = of_spans([Span(0)], 10)
    for width_ns in (15, 5):
        with pytest.raises(UsageError, match="take a multiple"):
            found.coarser(width_ns)
    with pytest.raises(UsageError, match="cumulative points have no windows"):
        found.total().coarser(10)


def test_points_of_several_widths_are_refused() -> None:
    """A topic of several jobs would be read as one."""
    mixed = [*of_spans([Span(0)], 10).points(), *of_spans([Span(0)], 20).points()]
    with pytest.raises(UsageError, match="2 points of windows of 10, 20 ns"):
        point_set(mixed)
    with pytest.raises(UsageError, match="1 of them cumulative"):
        point_set([mixed[0], replace(mixed[0], cumulative=True)])


def written(found: PointSet) -> bytes:
    """As a file of columns."""
    stream = io.BytesIO()
    write_columns(stream, found)
    return stream.getvalue()


@settings(max_examples=25)
@given(spans=span_lists())
def test_columns_come_back_to_the_bit(tmp_path_factory: pytest.TempPathFactory, spans: list[Span]) -> None:
    """A figure, bucket or exemplar would change on its way through a file."""
    path = tmp_path_factory.mktemp("points") / "a.bin"
    found = of_spans(spans, 10)
    path.write_bytes(written(found))
    again = read_points(path)
    assert again.exemplars
    assert again.width_ns == 10
    assert told(again.points()) == told(found.points())
    assert written(again) == path.read_bytes()


@settings(max_examples=25)
@given(spans=span_lists())
def test_lines_come_back_to_the_bit(tmp_path_factory: pytest.TempPathFactory, spans: list[Span]) -> None:
    """A line of `ingest --points` would be read as another point, with another exemplar, or a gauge lose its value."""
    path = tmp_path_factory.mktemp("points") / "a.jsonl"
    found = of_spans(spans, 10)
    if not len(found):
        return
    stream = io.StringIO()
    write_lines(stream, found)
    path.write_text(stream.getvalue())
    again = read_points(path)
    assert again.exemplars
    assert told(again.points()) == told(found.points())


def test_lines_without_exemplars_say_that_they_have_none(tmp_path: Path) -> None:
    """Lines of an earlier version would compare as changed in each exemplar; the other figures are as they were."""
    found = of_spans([Span(0), Span(30, row=1), Span(31, row=2)], 10)
    path = tmp_path / "old.jsonl"
    values = [point_json(point) for point in found.points()]
    assert [value.pop("exemplar") for value in values]
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    again = read_points(path)
    assert not again.exemplars
    assert compare(again, found).equal


def test_lines_are_those_of_ingest(live: Live) -> None:
    """`sort` and `diff` of a live file and a backtest's would show differences that there are none."""
    stream = io.StringIO()
    write_lines(stream, point_set(live.points))
    assert stream.getvalue().splitlines() == [json.dumps(point_json(point)) for point in live.points]


def test_other_and_its_occupancy_come_back_from_lines(live: Live, tmp_path: Path) -> None:
    """Time × warps of what top-K has folded, which a line says by its occupancy alone, would be off."""
    found = backtest(live.batches, WindowPolicy(10**9, None), top_k=2)
    with (tmp_path / "a").open("w") as stream:
        write_lines(stream, found)
    again = read_points(tmp_path / "a")
    assert "other" in {series.kernel for series in again.registry.series}
    assert sorted(again.rows.warp_ns.tolist()) == sorted(found.rows.warp_ns.tolist())


_LINE = json.dumps(point_json(of_spans([Span(0)], 10).points()[0])).encode() + b"\n"
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "version": (lambda data: data.replace(b'"spanlite_points": 1', b'"spanlite_points": 2', 1), "points of format 2"),
    "width": (lambda data: data.replace(b'"width_ns": 10', b'"width_ns": -5', 1), "no width"),
    "head": (lambda data: data.replace(b"}\n", b"\n", 1), "first line is cut off"),
    "end": (lambda data: data[:-7], "cut off or damaged"),
    "middle": (lambda data: data[:60] + b"\xff" * 20 + data[80:], "cannot be read|cut off|equally long"),
    "empty": (lambda _: b"", "no point in it"),
    "foreign": (lambda _: b"PAR1\x00\x01", "line 1 is no point"),
    "spans": (lambda _: b'{"kernel": "x", "start_ns": 1}\n', "line 1 is no point"),
    "second": (lambda _: _LINE + b'{"window": {}}\n', "line 2 is no point"),
    "schema": (lambda _: _LINE.replace(b'"schema": 5', b'"schema": 3'), "histogram schema 3"),
    "buckets": (lambda _: _LINE.replace(b'"count": 1', b'"count": 2'), "buckets hold 1 executions of 2"),
    "trace": (lambda _: re.sub(rb'"trace_id": [^,]*', b'"trace_id": "00ff"', _LINE), "exemplar's trace has 32"),
    "span": (lambda _: re.sub(rb'"span_id": [^,]*', b'"span_id": "0000000000000001ff"', _LINE), "its span 16"),
    "time": (lambda _: re.sub(rb'(exemplar.*"start_ns": )\d+', rb"\g<1>" + b"9" * 19, _LINE), "its times are int64"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_and_foreign_files_are_told_apart(name: str, tmp_path: Path) -> None:
    """A file of another version or kind would be compared as if it were points."""
    damage, said = DAMAGES[name]
    path = tmp_path / "points"
    path.write_bytes(damage(written(of_spans([Span(0), Span(30, row=1)], 10))))
    with pytest.raises(UsageError, match=said) as raised:
        read_points(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A slip in a path would end in a traceback."""
    with pytest.raises(UsageError, match="none: No such file"):
        read_points(tmp_path / "none")


def test_an_order_shows_nothing_of_the_way(live: Live) -> None:
    """Equal points that came in another order would be written as other bytes."""
    found = point_set(live.points)
    shuffled = point_set([live.points[at] for at in np.random.default_rng(3).permutation(len(live.points))])
    assert written(found.ordered()) == written(shuffled.ordered())
    keys: list[tuple[int, Series]] = [(p.window_start_ns, p.series) for p in shuffled.ordered().points()]
    assert keys == sorted(keys)
