"""Reading an archive back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch, ClockAnchor, Gpu
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, SamplingMode, make_columns
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.read import open_dataset, read_batches, scan
from spanlite.pipeline.archive.write import write_batches

FactsOf = Callable[[Batch], dict[str, list[Any]]]


def test_batches_come_back_with_equal_values(tmp_path: Path, batches: list[Batch], facts: FactsOf) -> None:
    """encode, decode, archive, read: every value of every row and of the header is as before, in order."""
    write_batches(tmp_path, [decode_batch(encode_batch(batch)) for batch in batches], buckets=4)
    back = list(read_batches(tmp_path))
    assert [facts(batch) for batch in back] == [facts(batch) for batch in batches]


def test_all_parents_are_restored(tmp_path: Path, batches: list[Batch]) -> None:
    """Of 20,000 kernels, each names by its wire id the range that it named before."""
    write_batches(tmp_path, batches)
    back = list(read_batches(tmp_path))
    ids = np.concatenate([batch.span_ids for batch in back])
    parents = np.concatenate([batch.parent_span_ids for batch in back])
    assert int((parents != 0).sum()) == 20_000
    assert np.isin(parents[parents != 0], ids).all()


def test_tables_are_cut_to_what_a_batch_uses(tmp_path: Path, batches: list[Batch]) -> None:
    """What is read encodes as small as what was written, give or take what it did not use."""
    write_batches(tmp_path, batches)
    for before, after in zip(batches, read_batches(tmp_path), strict=True):
        assert len(encode_batch(after)) <= len(encode_batch(before))


def test_a_trace_whose_start_is_told_late_stays_one(tmp_path: Path, batches: list[Batch], facts: FactsOf) -> None:
    """Two batches know the trace, one of them not its start: two entries, one id, one place, and both come back."""
    told, other = batches[0], batches[1]
    traces = told.columns.traces.copy()
    traces["start_ns"] = 0
    early = replace(told, columns=replace(told.columns, traces=traces))
    late = replace(other, columns=replace(other.columns, traces=told.columns.traces))
    write_batches(tmp_path, [early, late])
    (path,) = tmp_path.rglob("*.parquet")
    assert len(set(pq.read_table(path, columns=["trace_id"], partitioning=None)["trace_id"].to_pylist())) == 8
    assert [facts(batch) for batch in read_batches(tmp_path)] == [facts(early), facts(late)]


def test_a_small_window_gives_the_same_batches(tmp_path: Path, batches: list[Batch], facts: FactsOf) -> None:
    """How many rows are held at a time does not change what comes."""
    write_batches(tmp_path, batches, buckets=2)
    whole = [facts(batch) for batch in read_batches(tmp_path)]
    assert [facts(batch) for batch in read_batches(tmp_path, window_rows=1)] == whole


def test_order_is_that_of_emission_or_of_sequence(tmp_path: Path, batches: list[Batch]) -> None:
    """By default batches come as agents handed them on; on request producer by producer."""
    late = replace(batches[0], emit_ns=batches[4].emit_ns + 1)
    write_batches(tmp_path, [late, *batches[1:]])
    assert [batch.sequence for batch in read_batches(tmp_path)] == [1, 2, 3, 4, 0]
    assert [batch.sequence for batch in read_batches(tmp_path, order="sequence")] == [0, 1, 2, 3, 4]


def test_a_batch_archived_twice_comes_once(tmp_path: Path, batches: list[Batch], facts: FactsOf) -> None:
    """Written alone and together with others, under two names: its rows count once."""
    write_batches(tmp_path, batches[:2])
    write_batches(tmp_path, batches[1:2])
    assert [facts(batch) for batch in read_batches(tmp_path)] == [facts(batch) for batch in batches[:2]]


def test_missing_rows_leave_the_ids_of_the_others_right(tmp_path: Path, batches: list[Batch]) -> None:
    """With the file of one bucket lost, what is left still has its wire ids."""
    write_batches(tmp_path, batches[:1], buckets=2)
    next(iter(sorted(tmp_path.rglob("*.parquet")))).unlink()
    left = list(read_batches(tmp_path))
    ids = np.concatenate([batch.span_ids for batch in left])
    assert 0 < len(ids) < 4008
    known = dict(zip(batches[0].columns.start_ns.tolist(), batches[0].span_ids.tolist(), strict=True))
    starts = np.concatenate([batch.columns.start_ns for batch in left])
    assert [known[start] for start in starts.tolist()] == ids.tolist()


def test_scan_selects_filters_and_computes_wire_ids(tmp_path: Path, batches: list[Batch]) -> None:
    """The ids that messages show, beside stored columns, for the rows that match."""
    write_batches(tmp_path, batches)
    columns = ["wire_span_id", "start_ns", "wire_parent_span_id", "hour"]
    table = pa.Table.from_batches(scan(tmp_path, columns, where=pc.field("kind") == "range"))
    assert table.column_names == columns
    ranges = np.concatenate([batch.span_ids[-8:] for batch in batches])
    assert table["wire_span_id"].to_pylist() == ranges.tolist()
    assert table["wire_parent_span_id"].null_count == 40


def test_the_dataset_has_the_folders_as_columns(tmp_path: Path, batches: list[Batch]) -> None:
    """pyarrow and pandas users query date, hour and bucket like any column."""
    write_batches(tmp_path, batches, buckets=2)
    dataset = open_dataset(tmp_path)
    assert dataset.count_rows() == 20040
    assert (
        dataset.count_rows(filter=pc.field("bucket") == 0) + dataset.count_rows(filter=pc.field("bucket") == 1) == 20040
    )


def test_no_archive_is_said_to_be_none(tmp_path: Path) -> None:
    """A missing folder and an empty one, each in a sentence."""
    with pytest.raises(ArchiveError, match="no such folder"):
        list(read_batches(tmp_path / "none"))
    with pytest.raises(ArchiveError, match="holds no archive files"):
        list(read_batches(tmp_path))


@pytest.mark.parametrize("reader", [read_batches, scan])
def test_foreign_parquet_is_refused(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    """A Parquet file of something else, named with the first column that it lacks."""
    folder = tmp_path / "date=2026-01-01" / "hour=00" / "bucket=00"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"start_ns": [1]}), folder / "foreign.parquet")
    with pytest.raises(ArchiveError, match=r"foreign\.parquet: not a file of a spanlite archive: column 'duration_ns'"):
        list(reader(tmp_path))


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_named(tmp_path: Path, batches: list[Batch], damage: str) -> None:
    """Truncated, empty or overwritten bytes: an error of the archive that names the file, no crash."""
    write_batches(tmp_path, batches)
    (path,) = tmp_path.rglob("*.parquet")
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes({"cut": data[:half], "flipped": bytes(half) + data[half:], "empty": b""}[damage])
    with pytest.raises(ArchiveError, match=path.name):
        list(read_batches(tmp_path))


def test_a_newer_revision_is_refused(tmp_path: Path, batches: list[Batch]) -> None:
    """A file whose columns may mean something else is not read as if they did not."""
    write_batches(tmp_path, batches[:1])
    (path,) = tmp_path.rglob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"spanlite.format": "2"}), path)
    with pytest.raises(ArchiveError, match="archive revision 2; this version reads 1"):
        list(read_batches(tmp_path))


_I64 = st.integers(-(2**63), 2**63 - 1)
_U64 = st.integers(0, 2**64 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def _entries(draw: st.DrawFn, dtype: np.dtype[np.void], rows: int, limits: dict[str, int]) -> Any:
    table = np.zeros(rows, dtype=dtype)
    for name in dtype.names or ():
        kind = dtype[name]
        if name in limits:
            values: Any = st.integers(0, limits[name] - 1)
        elif kind.kind == "V":
            table[name] = np.array([draw(st.binary(min_size=16, max_size=16)) for _ in range(rows)], dtype="V16")
            continue
        else:
            values = st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max))
        table[name] = [draw(values) for _ in range(rows)]
    return table


@st.composite
def any_batch(draw: st.DrawFn) -> Batch:
    """A batch of any values that the wire can carry."""
    rows = draw(st.integers(1, 12))
    strings = ("", *draw(st.lists(_TEXT, min_size=1, max_size=4)))
    gpus = tuple(Gpu(f"GPU-{n}", n, draw(_TEXT), draw(st.integers(0, 12)), n) for n in range(draw(st.integers(0, 2))))
    configs = _entries(draw, CONFIG, 2, {"kernel": len(strings), "name": len(strings)})
    places = _entries(draw, PLACE, 2, {"gpu": len(gpus) + 1})
    nodes = np.concatenate([np.zeros(1, NODE), _entries(draw, NODE, 1, {})])
    traces = _entries(draw, TRACE, 2, {})

    def column(values: Any) -> Any:
        return np.array(draw(st.lists(values, min_size=rows, max_size=rows)))

    numbers = st.integers(-1, 2**63 - 1)
    return Batch(
        producer=draw(st.binary(min_size=16, max_size=16)),
        sequence=draw(_U64),
        session=draw(_U64),
        first_row=draw(st.integers(0, 2**63 - 100)),
        emit_ns=draw(_I64),
        columns=make_columns(
            column(_I64),
            column(st.integers(0, 2**63 - 1)),
            tables=(strings, configs, places, nodes, traces),
            kind=column(st.integers(0, 255)),
            config=column(st.integers(0, 1)),
            place=column(st.integers(0, 1)),
            node=column(st.integers(0, 1)),
            stage=column(st.integers(0, len(strings) - 1)),
            trace=column(st.integers(-1, 1)),
            parent=column(numbers),
            range_number=column(numbers),
            correlation=column(_I64),
            bytes=column(_I64),
            weight=column(st.integers(0, 2**32 - 1)),
        ),
        resource=draw(st.dictionaries(_TEXT, _TEXT, max_size=3)),
        gpus=gpus,
        clock=ClockAnchor(draw(_I64), draw(_I64), draw(st.integers(0, 2**32 - 1))),
        sampling=draw(st.sampled_from(list(SamplingMode))),
    )


@settings(max_examples=60, deadline=None)
@given(batch=any_batch(), buckets=st.sampled_from([1, 4]))
def test_any_batch_survives(facts: FactsOf, batch: Batch, buckets: int) -> None:
    """Extreme numbers, odd texts, unknown kinds, every table: equal after archive and read."""
    with TemporaryDirectory() as folder:
        write_batches(folder, [batch], buckets=buckets)
        (back,) = read_batches(folder)
    assert facts(back) == facts(batch)
