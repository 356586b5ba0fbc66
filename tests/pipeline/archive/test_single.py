"""Columns of one value are told from statistics and filled, not decoded: to the same table, whatever the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanlite.contract.batch import Batch
from spanlite.pipeline.archive.compact import compact
from spanlite.pipeline.archive.schema import COLUMNS, open_file
from spanlite.pipeline.archive.single import read_columns, single_columns
from spanlite.pipeline.archive.snapshot import live_files
from spanlite.pipeline.archive.store import open_store
from spanlite.pipeline.archive.write import write_batches

NAMES = [column.name for column in COLUMNS]


def _check(root: Path) -> list[list[str]]:
    """Holds each row group against what pyarrow decodes; returns the columns that were filled in each."""
    store, filled = open_store(root), []
    for entry in live_files(store):
        with open_file(store, entry.name) as file:
            for group in range(file.num_row_groups):
                plain = file.read_row_group(group, columns=NAMES)
                got = read_columns(file, group, NAMES)
                assert got.column_names == NAMES
                for name in NAMES:
                    assert got.schema.field(name).type == plain.schema.field(name).type
                    assert got[name].to_pylist() == plain[name].to_pylist(), name
                told = read_columns(file, group, NAMES, runs=True)
                for name in NAMES:
                    assert told[name].to_pylist() == plain[name].to_pylist(), name
                few = {name for name in NAMES if len({*plain[name].to_pylist()}) == 1}
                seen = single_columns([file])
                runs = {name for name in NAMES if pa.types.is_run_end_encoded(told.schema.field(name).type)}
                assert few.issuperset(runs)
                assert runs.issuperset(seen)
                filled.append(seen)
    return filled


def test_filled_columns_are_those_that_decoding_gives(tmp_path: Path, batches: list[Batch]) -> None:
    """Of files as they are written: numbers signed and not, texts, ids, nulls throughout and nulls here and there."""
    write_batches(tmp_path, [replace(batch, resource={"host.name": "a"}) for batch in batches])
    (names,) = _check(tmp_path)
    assert {"session", "producer", "host", "pod", "gpu_uuid", "weight", "batch_info", "sampling"} - {*names} == {
        "gpu_uuid"  # ranges have none
    }


def test_a_compacted_file_says_what_all_of_its_files_say(tmp_path: Path, batches: list[Batch]) -> None:
    """A column that is one in each file and another in the next is not one."""
    hosts = [replace(batch, resource={"host.name": f"h{number % 2}"}) for number, batch in enumerate(batches)]
    for batch in hosts:
        write_batches(tmp_path, [batch])
    assert all("host" in names for names in _check(tmp_path))
    assert compact(tmp_path)
    (names,) = _check(tmp_path)
    assert "host" not in names
    assert {"session", "producer", "pod", "sampling"} <= {*names}


@pytest.mark.parametrize("values", [[2**63, 2**63], [-1, -1], [0.5, 0.5], ["", ""], [b"x" * 16] * 2, [None, None]])
def test_any_value_may_be_the_one(tmp_path: Path, values: list[object]) -> None:
    """Large and negative numbers, the empty text, an id, null."""
    kinds: dict[type, object] = {float: pa.float64(), str: pa.string(), bytes: pa.binary(16), type(None): pa.int32()}
    kind = kinds.get(type(values[0]), pa.uint64() if values[0] == 2**63 else pa.int64())
    pq.write_table(pa.table({"one": pa.array(values, kind), "many": [1, 2]}), tmp_path / "f.parquet")
    with pq.ParquetFile(tmp_path / "f.parquet") as file:
        assert single_columns([file]) == ["one"]
        assert read_columns(file, 0, ["many", "one"]) == file.read_row_group(0, columns=["many", "one"])
        assert read_columns(file, 0, ["one"], runs=True)["one"].to_pylist() == values


def test_a_value_here_and_null_there_are_two(tmp_path: Path) -> None:
    """Nulls are not in the minimum and maximum of statistics."""
    pq.write_table(pa.table({"some": pa.array([None, 5, 5], pa.int64())}), tmp_path / "f.parquet")
    with pq.ParquetFile(tmp_path / "f.parquet") as file:
        assert single_columns([file]) == []
        assert read_columns(file, 0, ["some"])["some"].to_pylist() == [None, 5, 5]


def test_without_statistics_everything_is_decoded(tmp_path: Path) -> None:
    """A file that another tool wrote without them is read all the same."""
    pq.write_table(pa.table({"one": np.zeros(5)}), tmp_path / "f.parquet", write_statistics=False)
    with pq.ParquetFile(tmp_path / "f.parquet") as file:
        assert single_columns([file]) == []
        assert read_columns(file, 0, ["one"])["one"].to_pylist() == [0.0] * 5
