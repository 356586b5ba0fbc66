"""Writing an archive."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.columns import TRACE, make_columns
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.schema import SCHEMA, writer_options
from spanlite.pipeline.archive.write import ArchiveWriter, write_batches

HOUR_NS = 3_600_000_000_000


def files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.parquet"))


def duck(root: Path, query: str, macros: str = "") -> list[Any]:
    """Rows of a query over the view `spans`."""
    with duckdb.connect() as connection:
        connection.execute(macros)
        files = connection.read_parquet(f"{root}/**/*.parquet", hive_partitioning=True)
        files.create_view("spans")
        rows: list[Any] = connection.sql(query).fetchall()
        return rows


def test_duckdb_reads_every_span_with_its_values(tmp_path: Path, batches: list[Batch]) -> None:
    """An engine that knows nothing of spanlite finds counts, sums, folders and texts as they were given."""
    write_batches(tmp_path, batches)
    total = sum(int(batch.columns.duration_ns.sum()) for batch in batches)
    query = (
        "select count(*), sum(duration_ns), min(date)::text, min(hour), count(distinct (session, span_id)) from spans"
    )
    first = np.datetime64(int(batches[0].columns.start_ns.min()), "ns")
    assert duck(tmp_path, query) == [(20040, total, str(first)[:10], int(str(first)[11:13]), 20040)]
    query = """select gpu_uuid, occupancy_limiter, theoretical_occupancy, host, pid, pod, count(*)
        from spans where kind = 'kernel' group by all"""
    assert duck(tmp_path, query) == [("GPU-11112222", "registers", 0.75, "node-1", "4711", None, 20000)]


def test_every_parent_is_found_by_joining_in_sql(tmp_path: Path, batches: list[Batch]) -> None:
    """All 20,000 kernels find the range that they name, by session and un-mixed id, in the same trace."""
    write_batches(tmp_path, batches)
    query = """select count(*) from spans child join spans parent
        on child.session = parent.session and child.parent_span_id = parent.span_id and child.trace_id = parent.trace_id
        where parent.kind = 'range' and child.kind = 'kernel'"""
    assert duck(tmp_path, query) == [(20000,)]


def test_documented_macro_gives_the_ids_of_the_wire(tmp_path: Path, batches: list[Batch]) -> None:
    """The DuckDB macro in docs/archive.md computes what the contract computes."""
    write_batches(tmp_path, batches)
    page = (Path(__file__).parents[3] / "docs" / "archive.md").read_text()
    macros = page[page.index("create macro") :]
    query = "select wire_id(session, span_id) from spans order by session_row"
    rows = duck(tmp_path, query, macros[: macros.index("```")])
    assert [row[0] for row in rows] == [int(value) for batch in batches for value in batch.span_ids]


def test_documented_queries_run(tmp_path: Path, batches: list[Batch]) -> None:
    """Each statement of the page's first SQL block gives rows on a real archive."""
    write_batches(tmp_path, batches)
    page = (Path(__file__).parents[3] / "docs" / "archive.md").read_text()
    block = page.split("```sql")[1].split("```")[0].replace("'archive/", f"'{tmp_path}/")
    ((hour,),) = duck(tmp_path, "select distinct hour from spans")
    block = block.replace("hour = 13", f"hour = {hour}")
    view, *queries = [statement for statement in block.split(";") if statement.strip()]
    with duckdb.connect() as connection:
        connection.execute(view)
        kernels, stages, request = (connection.sql(query).fetchall() for query in queries)
    assert len(kernels) == 20
    assert {row[0] for row in stages} == {"prefill", "decode"}
    assert len(request) == 500


def test_rows_are_sorted_by_trace_start_trace_and_start(tmp_path: Path, batches: list[Batch]) -> None:
    """Sorting the rows of the file by the documented key changes nothing."""
    write_batches(tmp_path, batches[::-1])
    (path,) = files(tmp_path)
    rows = pq.read_table(path, columns=["trace_start_ns", "trace_id", "start_ns"]).to_pylist()
    keys = [tuple(row.values()) for row in rows]
    assert keys == sorted(keys)


def test_a_repeated_write_replaces_itself(tmp_path: Path, batches: list[Batch]) -> None:
    """The same batches written again, in another order, leave the same file names and as many spans."""
    write_batches(tmp_path, batches)
    before = files(tmp_path)
    write_batches(tmp_path, batches[::-1])
    assert files(tmp_path) == before
    assert duck(tmp_path, "select count(*) from spans") == [(20040,)]


def test_a_batch_added_twice_is_written_once(tmp_path: Path, batches: list[Batch]) -> None:
    """Redelivery within one flush adds no rows."""
    assert write_batches(tmp_path, [batches[0], batches[1], batches[0]]) == 8016


def test_a_trace_is_never_split_over_hours(tmp_path: Path, batches: list[Batch]) -> None:
    """Spans on both sides of an hour lie in the hour in which their trace began; spans without trace likewise."""
    begin = 480_000 * HOUR_NS - 1000
    columns = batches[0].columns.take(slice(0, 4))
    traces = np.zeros(2, dtype=TRACE)
    traces["id"] = np.array([b"a" * 16, b"b" * 16], dtype="V16")
    traces["start_ns"] = [begin, 0]  # the second is not told by the agent: its first span counts
    columns = replace(
        columns,
        start_ns=begin + np.array([100, 2000, 2500, 500]),
        trace=np.array([0, 0, 1, 1], dtype=np.int32),
        traces=traces,
    )
    loose = replace(columns, start_ns=begin + np.array([10, 20, 3000, 4000]), trace=np.full(4, -1, dtype=np.int32))
    write_batches(tmp_path, [replace(batches[0], columns=columns), replace(batches[1], columns=loose)])
    (path,) = files(tmp_path)
    hour = np.datetime64(479_999, "h")
    assert path.relative_to(tmp_path).parts[:2] == (f"date={str(hour)[:10]}", f"hour={str(hour)[11:13]}")
    assert pq.read_metadata(path).num_rows == 8


def test_a_trace_lies_in_one_bucket(tmp_path: Path, batches: list[Batch]) -> None:
    """With four buckets, all are used and no trace is in two of them; nothing is lost."""
    write_batches(tmp_path, batches, buckets=4)
    query = """select count(distinct bucket), count(distinct trace_id), count(distinct (bucket, trace_id)), count(*)
        from spans"""
    assert duck(tmp_path, query) == [(4, 40, 40, 20040)]


def test_files_have_the_documented_columns(tmp_path: Path, batches: list[Batch]) -> None:
    """Names, order and types of the file are those of the contract, and the times are delta-encoded."""
    write_batches(tmp_path, batches)
    (path,) = files(tmp_path)
    assert pq.read_schema(path).equals(SCHEMA)
    group = pq.read_metadata(path).row_group(0)
    encodings = {group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in encodings["start_ns"]
    assert "RLE_DICTIONARY" not in encodings["start_ns"]
    assert "RLE_DICTIONARY" in encodings["kernel"]
    page = (Path(__file__).parents[3] / "docs" / "archive.md").read_text()
    assert [name for name in SCHEMA.names if f"| `{name}` |" not in page] == []


def test_waiting_spans_are_bounded(tmp_path: Path, batches: list[Batch]) -> None:
    """The writer flushes by itself when enough spans wait."""
    writer = ArchiveWriter(tmp_path, roll_spans=8000)
    for batch in batches:
        writer.add(batch)
    assert (writer.files_written, writer.spans_written) == (2, 16032)
    writer.close()
    assert writer.spans_written == 20040
    assert writer.bytes_written == sum(path.stat().st_size for path in files(tmp_path))


def test_nothing_waiting_writes_nothing(tmp_path: Path, batches: list[Batch]) -> None:
    """Empty batches and empty flushes make no files."""
    writer = ArchiveWriter(tmp_path)
    writer.add(replace(batches[0], columns=batches[0].columns.take(slice(0, 0))))
    assert writer.flush() == []
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    """The error names the folder before any span is taken."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArchiveError, match="file/archive: cannot hold an archive"):
        ArchiveWriter(tmp_path / "file" / "archive")


def test_buckets_must_be_a_power_of_two(tmp_path: Path) -> None:
    """Other numbers would make a hash's low bits choose unevenly."""
    with pytest.raises(ValueError, match="power of two"):
        ArchiveWriter(tmp_path, buckets=3)


def test_a_failed_write_leaves_no_trace_and_can_be_repeated(
    tmp_path: Path, batches: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk in the middle of a file: a clear error, no file under any name, and the batches still wait."""
    writer = ArchiveWriter(tmp_path)
    writer.add(batches[0])

    class FullDisk(pq.ParquetWriter):  # type: ignore[misc]  # pyarrow is untyped
        def write_table(self, *args: Any, **kwargs: Any) -> None:
            super().write_table(*args, **kwargs)
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetWriter", FullDisk)
        with pytest.raises(ArchiveError, match="No space left"):
            writer.flush()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert len(writer.flush()) == 1
    assert duck(tmp_path, "select count(*) from spans") == [(4008,)]


_KILLED = """
import os, signal, sys
from pathlib import Path
import pyarrow.parquet as pq
from spanlite.pipeline.archive.read import read_batches
from spanlite.pipeline.archive.write import ArchiveWriter
source, root = sys.argv[1:]
writer = ArchiveWriter(root)
taken = list(read_batches(source))
writer.add(taken[0]); writer.flush()
whole = pq.ParquetWriter.write_table
def write_table(self, *args, **kwargs):
    whole(self, *args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
pq.ParquetWriter.write_table = write_table
writer.add(taken[1]); writer.flush()
"""


def test_a_killed_writer_leaves_whole_files_only(tmp_path: Path, batches: list[Batch]) -> None:
    """SIGKILL while the second file is written: readers see the first one alone; writing again heals the rest."""
    source, root = tmp_path / "source", tmp_path / "root"
    write_batches(source, batches[:2])
    child = subprocess.run(
        [sys.executable, "-c", _KILLED, source, root], env={"PYTHONPATH": ":".join(sys.path)}, check=False
    )
    assert child.returncode == -signal.SIGKILL
    assert duck(root, "select count(*) from spans") == [(4008,)]
    assert len(list(root.rglob(".*.tmp"))) == 1
    for batch in batches[:2]:
        write_batches(root, [batch])
    assert duck(root, "select count(*) from spans") == [(8016,)]
    assert list(root.rglob(".*.tmp")) == []


def test_long_and_hostile_names_are_stored_once_per_file(tmp_path: Path, batches: list[Batch]) -> None:
    """A name of 1 MB with quotes, newlines and NUL comes back from DuckDB, and is not repeated on every row."""
    name = "k'\"\n\0€" + "x" * 1_000_000
    columns = batches[0].columns
    at = columns.strings.index(columns.strings[columns.configs["name"][0]])
    strings = tuple(name if index == at else text for index, text in enumerate(columns.strings))
    write_batches(tmp_path, [replace(batches[0], columns=replace(columns, strings=strings))])
    assert (name,) in duck(tmp_path, "select distinct name from spans")
    assert sum(path.stat().st_size for path in files(tmp_path)) < 200_000


def test_dictionaries_and_deltas_exclude_each_other() -> None:
    """The writer ignores an encoding where a dictionary is on, so no column has both."""
    options = writer_options(["grid_x"])
    assert set(options["use_dictionary"]).isdisjoint({*options["column_encoding"], "grid_x"})


def test_dense_ids_cost_next_to_nothing(tmp_path: Path, batches: list[Batch]) -> None:
    """All id columns together take less than a third of a byte per span, in a file as small as this."""
    write_batches(tmp_path, batches)
    (path,) = files(tmp_path)
    group = pq.read_metadata(path).row_group(0)
    names = {"span_id", "parent_span_id", "session", "trace_id", "producer", "session_row", "correlation_id"}
    columns = [group.column(i) for i in range(group.num_columns)]
    size = sum(column.total_compressed_size for column in columns if column.path_in_schema in names)
    assert size / group.num_rows < 1 / 3


def test_an_archive_of_neutral_rows_can_be_written(
    tmp_path: Path, batches: list[Batch], facts: Callable[[Batch], Any]
) -> None:
    """Rows without stage, trace, parent, GPU or occupancy: nulls where the contract says so."""
    columns = batches[0].columns
    plain = make_columns(
        columns.start_ns[:3],
        columns.duration_ns[:3],
        tables=(
            ("",),
            np.zeros(1, columns.configs.dtype),
            np.zeros(1, columns.places.dtype),
            columns.nodes,
            columns.traces,
        ),
    )
    write_batches(tmp_path, [replace(batches[0], columns=plain, gpus=(), resource={})])
    query = """select distinct stage, trace_id, parent_span_id, gpu_uuid, theoretical_occupancy, occupancy_limiter, host
        from spans"""
    assert duck(tmp_path, query) == [(None,) * 7]
