"""Ranges of sequences, and what footers say of batches."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.compact import compact
from spanlite.pipeline.archive.provenance import Ranges, from_json, read_provenance, to_json, union
from spanlite.pipeline.archive.schema import SCHEMA
from spanlite.pipeline.archive.store import open_store
from spanlite.pipeline.archive.write import write_batches

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair))), max_size=12)


def members(ranges: list[tuple[int, int]]) -> set[int]:
    return {value for first, last in ranges for value in range(first, last + 1)}


@given(one=pairs, other=pairs)
def test_ranges_are_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    """Adding, joining, intersecting, asking and reading back agree with Python's sets, in as few ranges as can be."""
    ranges = Ranges(one)
    assert [value for value in range(50) if value in ranges] == sorted(members(one))
    gaps = list(ranges)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(gaps))
    assert members(list(ranges.common(Ranges(other)))) == members(one) & members(other)
    assert from_json(to_json({b"p": ranges})) == {b"p": ranges}
    ranges.update(Ranges(other))
    assert ranges == Ranges.of(members(one) | members(other))
    assert bool(ranges) == bool(one or other)


def test_the_largest_sequences_are_exact() -> None:
    """64 bits, next to each other, in JSON as well."""
    most = 2**64 - 1
    held = {bytes(16): Ranges([(most, most), (most - 1, most - 1), (3, 3)])}
    assert to_json(held) == f'{{"{"00" * 16}":[[3,3],[{most - 1},{most}]]}}'
    assert from_json(to_json(held)) == held
    assert str(held[bytes(16)]) == f"3, {most - 1}-{most}"


@pytest.mark.parametrize("text", ["", "[]", "3", '{"zz":[]}', '{"00":3}', '{"00":[[1]]}', '{"00":[["a",1]]}'])
def test_other_texts_are_refused(text: str) -> None:
    """Whatever else may stand in a footer is a ValueError, nothing else."""
    with pytest.raises(ValueError):
        from_json(text)


def footers(root: Path) -> list[object]:
    """What pyarrow reads there, by name of file."""
    return [
        json.loads(pq.read_metadata(path).metadata[b"spanlite.batches"])
        for path in sorted(root.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    ]


def test_each_footer_names_the_batches_of_its_file(tmp_path: Path, batches: list[Batch]) -> None:
    """Of a file of several batches, and, after a compaction, of all of its inputs."""
    producer = batches[0].producer.hex()
    write_batches(tmp_path, [batches[0], batches[1], batches[3]])
    write_batches(tmp_path, [batches[4]])
    assert footers(tmp_path) == [{producer: [[0, 1], [3, 3]]}, {producer: [[4, 4]]}]
    compact(tmp_path)
    assert footers(tmp_path) == [{producer: [[0, 1], [3, 4]]}]


def test_pyarrow_without_a_call_for_footers_writes_the_same(
    tmp_path: Path, batches: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyFlink's pyarrow: equal rows and facts, texts that are texts, and statistics, by the other way to write them."""
    write_batches(tmp_path / "new", batches[:2])
    monkeypatch.delattr(pq.ParquetWriter, "add_key_value_metadata", raising=False)
    write_batches(tmp_path / "old", batches[:2])
    (one,), (other,) = ((tmp_path / name).rglob("*.parquet") for name in ("new", "old"))
    first, second = pq.ParquetFile(one), pq.ParquetFile(other)
    assert second.schema_arrow.equals(SCHEMA)
    assert first.read().equals(second.read())
    facts = {key: value for key, value in second.metadata.metadata.items() if key != b"ARROW:schema"}
    assert facts == {key: value for key, value in first.metadata.metadata.items() if key != b"ARROW:schema"}
    assert set(facts) == {b"spanlite.format", b"spanlite.buckets", b"spanlite.batches"}
    assert first.metadata.row_group(0).to_dict() == second.metadata.row_group(0).to_dict()
    assert duckdb.sql(f"select count(*) from '{other}'").fetchall() == [(8016,)]  # noqa: S608  # our own file


def test_files_of_before_are_read_by_their_rows(tmp_path: Path, batches: list[Batch]) -> None:
    """A footer without the key: the rows say which batches there are, and compaction writes it down."""
    write_batches(tmp_path, batches[1:3])
    (path,) = tmp_path.rglob("*.parquet")
    facts = pq.read_metadata(path).metadata
    del facts[b"spanlite.batches"]
    pq.write_table(pq.read_table(path, partitioning=None).replace_schema_metadata(facts), path)
    store = open_store(tmp_path)
    assert read_provenance(store, str(path.relative_to(tmp_path))) == {batches[0].producer: Ranges([(1, 2)])}
    write_batches(tmp_path, batches[:1])
    compact(tmp_path)
    assert footers(tmp_path) == [{batches[0].producer.hex(): [[0, 2]]}]


def test_a_footer_that_says_nonsense_is_an_error(tmp_path: Path, batches: list[Batch]) -> None:
    """The file is named: guessing could write rows twice or lose them."""
    write_batches(tmp_path, batches[:1])
    (path,) = tmp_path.rglob("*.parquet")
    facts = {**pq.read_metadata(path).metadata, b"spanlite.batches": b"?"}
    pq.write_table(pq.read_table(path, partitioning=None).replace_schema_metadata(facts), path)
    with pytest.raises(ArchiveError, match=f"{path.name}: its footer names no batches"):
        read_provenance(open_store(tmp_path), str(path.relative_to(tmp_path)))


def test_union_leaves_its_parts_alone() -> None:
    """The sum is new; what was added is as before."""
    part = {b"a": Ranges([(1, 1)])}
    whole = union([part, {b"a": Ranges([(2, 2)]), b"b": Ranges([(7, 7)])}])
    assert whole == {b"a": Ranges([(1, 2)]), b"b": Ranges([(7, 7)])}
    assert part == {b"a": Ranges([(1, 1)])}
