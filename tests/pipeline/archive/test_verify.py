"""Checking an archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.verify import verify
from spanlite.pipeline.archive.write import write_batches


def rewrite(path: Path, table: pa.Table) -> None:
    """The file with other rows; its footer's facts are kept."""
    facts = pq.read_metadata(path).metadata
    pq.write_table(table.replace_schema_metadata(facts), path)


def test_a_sound_archive_has_no_problems(tmp_path: Path, batches: list[Batch]) -> None:
    """Counts are exact and all parents of the 20,000 kernels are found."""
    write_batches(tmp_path, batches, buckets=4)
    report = verify(tmp_path)
    assert report.problems == []
    assert (report.files, report.spans, report.with_parent, report.parent_share) == (4, 20040, 20000, 1.0)
    assert report.bytes == sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))


def test_rows_without_traces_over_two_hours_are_sound(tmp_path: Path, batches: list[Batch]) -> None:
    """Sessions that begin in different hours keep their order within each hour."""
    hour = 3_600_000_000_000
    loose = []
    for number, batch in enumerate(batches):
        columns = replace(batch.columns, trace=np.full(len(batch.columns), -1, dtype=np.int32))
        moved = replace(columns, start_ns=columns.start_ns + hour * (number // 2))
        loose.append(replace(batch, columns=moved, session=number % 2))
    write_batches(tmp_path, loose)
    report = verify(tmp_path)
    assert (report.files, report.spans, report.problems) == (3, 20040, [])


def test_missing_parents_are_a_share_not_a_problem(tmp_path: Path, batches: list[Batch]) -> None:
    """A range that never closed has no row; its kernels are counted."""
    kernels = [replace(batch, columns=batch.columns.take(slice(0, 4000))) for batch in batches[:1]]
    write_batches(tmp_path, [*kernels, *batches[1:2]])
    report = verify(tmp_path)
    assert report.problems == []
    assert (report.with_parent, report.parents_found, report.parent_share) == (8000, 4000, 0.5)


def test_unsorted_rows_are_found(tmp_path: Path, batches: list[Batch]) -> None:
    """A file whose rows stand in reverse."""
    write_batches(tmp_path, batches)
    (path,) = tmp_path.rglob("*.parquet")
    table = pq.read_table(path, partitioning=None)
    rewrite(path, table.take(pa.array(np.arange(len(table))[::-1])))
    (problem,) = verify(tmp_path).problems
    assert problem.startswith(f"{path}: rows are not sorted")


def test_ids_that_stand_twice_are_found(tmp_path: Path, batches: list[Batch]) -> None:
    """The same batch in two files, before compaction: which batch, in which files, and how many ids."""
    write_batches(tmp_path, batches)
    write_batches(tmp_path, batches[:1])
    overlap, problem = verify(tmp_path).problems
    one, other = sorted(path.name for path in tmp_path.rglob("*.parquet"))
    assert overlap.endswith(
        f"bucket=00: batches 0 of producer {bytes(range(16)).hex()} lie in {one} and in {other}; "
        "run `spanlite archive compact`"
    )
    assert problem == "session fedcba9876543210: 4008 span ids stand twice; run `spanlite archive compact`"


def test_misplaced_files_are_found(tmp_path: Path, batches: list[Batch]) -> None:
    """A file moved to a later hour, and one moved to another bucket."""
    write_batches(tmp_path, batches, buckets=2)
    first, second = sorted(tmp_path.rglob("*.parquet"))
    later = first.parents[1].with_name("hour=23") / "bucket=00"
    later.mkdir(parents=True)
    first.rename(later / first.name)
    second.rename(first)
    text = "\n".join(verify(tmp_path).problems)
    assert "hour=23/bucket=00/" in text
    assert "holds a trace that began in an earlier hour" in text
    assert "holds a trace of another bucket" in text


def test_leftovers_foreign_and_damaged_files_are_each_named(tmp_path: Path, batches: list[Batch]) -> None:
    """One line for each, and the sound file still counts."""
    write_batches(tmp_path, batches[:1])
    (path,) = tmp_path.rglob("*.parquet")
    path.with_name(".x.parquet.tmp").write_bytes(b"half")
    path.with_name("cut.parquet").write_bytes(path.read_bytes()[:1000])
    data = bytearray(path.read_bytes())
    data[1000:2000] = bytes(1000)
    path.with_name("flipped.parquet").write_bytes(data)
    pq.write_table(pa.table({"x": [1]}), path.with_name("foreign.parquet"))
    report = verify(tmp_path)
    assert report.spans >= 4008
    assert [Path(problem.split(": ")[0]).name for problem in report.problems] == [
        "cut.parquet",
        "flipped.parquet",
        "foreign.parquet",
        ".x.parquet.tmp",
    ]


def test_an_empty_folder_is_a_problem_and_a_missing_one_an_error(tmp_path: Path) -> None:
    """Neither passes as a sound archive."""
    assert verify(tmp_path).problems == [f"{tmp_path}: holds no archive files (date=…/hour=…/bucket=…/*.parquet)"]
    with pytest.raises(ArchiveError, match="no such folder"):
        verify(tmp_path / "none")


def test_footers_that_contradict_their_rows_are_found(tmp_path: Path, batches: list[Batch]) -> None:
    """One batch too few, one too many, and a text that is no list of batches."""
    producer = batches[0].producer.hex()
    for wrong in (f'{{"{producer}":[[0,1]]}}', f'{{"{producer}":[[0,3]]}}', "{}", "?"):
        write_batches(tmp_path, batches[:3])
        (path,) = tmp_path.rglob("*.parquet")
        assert verify(tmp_path).problems == []
        facts = {**pq.read_metadata(path).metadata, b"spanlite.batches": wrong.encode()}
        pq.write_table(pq.read_table(path, partitioning=None).replace_schema_metadata(facts), path)
        (problem,) = verify(tmp_path).problems
        assert problem == f"{path}: its footer names other batches than its rows; write it again from its batches"


def test_overlaps_name_each_pair_of_files(tmp_path: Path, batches: list[Batch]) -> None:
    """Batches 1 to 3 in one file, 0 to 1 and 3 to 4 in others: which ones lie where twice."""
    names = []
    for chosen in (batches[1:4], batches[:2], batches[3:]):
        write_batches(tmp_path, chosen)
        names.append(max(tmp_path.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns).name)
    overlaps = [problem for problem in verify(tmp_path).problems if "producer" in problem]
    assert len(overlaps) == 2
    assert any("batches 1 of" in text and names[0] in text and names[1] in text for text in overlaps)
    assert any("batches 3 of" in text and names[0] in text and names[2] in text for text in overlaps)
