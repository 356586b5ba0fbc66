"""Folders, buckets and names of the archive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.layout import (
    bucket_of,
    compact_name,
    file_name,
    parse_partition,
    partition_folder,
    trace_hash,
)
from spanlite.pipeline.archive.local import WholeFile

_MASK = (1 << 64) - 1


def mixed(value: int) -> int:
    """SplitMix64's finaliser on Python integers."""
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


def test_buckets_are_those_of_the_hash_on_plain_integers() -> None:
    """The vectorised hash equals one written out, so a trace keeps its bucket on every machine and version."""
    ids = [bytes(range(16)), bytes(16), b"\xff" * 16, b"0123456789abcdef"]
    halves = [(int.from_bytes(i[:8], "little"), int.from_bytes(i[8:], "little")) for i in ids]
    expected = [mixed(low ^ mixed(high)) for low, high in halves]
    hashes = trace_hash(np.array(ids, dtype="V16"))
    assert hashes.tolist() == expected
    assert bucket_of(hashes, 16).tolist() == [value % 16 for value in expected]


@pytest.mark.parametrize(
    ("hour", "bucket", "folder"),
    [
        (0, 0, "date=1970-01-01/hour=00/bucket=00"),
        (498_877, 7, "date=2026-11-29/hour=13/bucket=07"),
        (-1, 123, "date=1969-12-31/hour=23/bucket=123"),
    ],
)
def test_folders_name_hours_and_are_read_back(hour: int, bucket: int, folder: str) -> None:
    """Hours since 1970, before it as well, and buckets of any number of digits."""
    assert partition_folder(hour, bucket) == folder
    assert parse_partition(folder) == (hour, bucket)


def test_other_folders_are_refused() -> None:
    """With what a folder of an archive looks like."""
    with pytest.raises(ArchiveError, match="date=YYYY-MM-DD/hour=HH/bucket=NN"):
        parse_partition("date=2026-11-29/hour=13")


def test_names_follow_from_the_batches_alone() -> None:
    """The order does not matter; producer, sequences and first rows do."""
    one, other = bytes(range(16)), b"\xff" * 16
    name = file_name([(one, 1, 0), (one, 7, 90), (other, 3, 0)])
    assert name.startswith("0001020304050607-0000000001-0000000007-")
    assert name == file_name([(other, 3, 0), (one, 7, 90), (one, 1, 0)])
    others = [
        file_name([(one, 1, 0), (one, 7, 90)]),
        file_name([(one, 1, 0), (one, 7, 91), (other, 3, 0)]),
        file_name([(one, 1, 0), (one, 8, 90), (other, 3, 0)]),
    ]
    assert len({name, *others}) == 4
    assert compact_name(["b", "a"]) == compact_name(["a", "b"]) != compact_name(["a"])


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """Under a hidden name while it is written; gone when writing fails."""
    path = tmp_path / "x.parquet"
    with WholeFile(path) as file:
        file.write(b"whole")
        assert [p.name for p in tmp_path.iterdir()] == [".x.parquet.tmp"]
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]
    assert path.read_bytes() == b"whole"

    def fail() -> None:
        with WholeFile(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == ["x.parquet"]
    assert path.read_bytes() == b"whole"
