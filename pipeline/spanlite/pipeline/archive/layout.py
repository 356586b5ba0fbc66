"""Where a span's row lies: folders by hour and bucket of its trace, file names by the batches that they hold."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spanlite.contract.columns import Int64, UInt64
from spanlite.contract.errors import ArchiveError
from spanlite.contract.ids import mix64
from spanlite.pipeline.archive.schema import REPLACES_KEY

HOUR_NS = 3_600_000_000_000
COMPACT_PREFIX = "compact-"
TEMPORARY_SUFFIX = ".tmp"
_PARTITION = re.compile(r"date=(-?\d+-\d\d-\d\d)/hour=(\d\d)/bucket=(\d+)")


def trace_hash(ids: NDArray[np.void]) -> UInt64:
    """Well-mixed 64-bit hash of 16-byte trace ids, shape (n,); the same on every machine."""
    halves = np.ascontiguousarray(ids).view("<u8").reshape(-1, 2)
    return mix64(halves[:, 0] ^ mix64(halves[:, 1]))


def bucket_of(hashes: UInt64, buckets: int) -> NDArray[np.int64]:
    """Bucket of each hash; `buckets` is a power of two."""
    return (hashes & np.uint64(buckets - 1)).astype(np.int64)


def hour_of(start_ns: Int64) -> Int64:
    """Hours since 1970 (UTC)."""
    return start_ns // HOUR_NS


def partition_folder(hour: int, bucket: int) -> str:
    """`date=YYYY-MM-DD/hour=HH/bucket=NN` of hours since 1970."""
    day = np.datetime64(hour // 24, "D")
    return f"date={day}/hour={hour % 24:02d}/bucket={bucket:02d}"


def parse_partition(folder: Path) -> tuple[int, int]:
    """Hours since 1970 and bucket of a partition's folder.

    Raises:
        ArchiveError: the path does not end in such a folder.
    """
    match = _PARTITION.fullmatch("/".join(folder.parts[-3:]))
    if match is None:
        raise ArchiveError(f"{folder}: not a folder date=YYYY-MM-DD/hour=HH/bucket=NN; is it part of an archive?")
    day = int(np.datetime64(match[1], "D").astype(np.int64))
    return day * 24 + int(match[2]), int(match[3])


def file_name(batches: Iterable[tuple[bytes, int, int]]) -> str:
    """Name of a file by the (producer, sequence, first row) of its batches: written again, it replaces itself."""
    ordered = sorted(batches)
    producer, first, _ = ordered[0]
    last = max(sequence for other, sequence, _ in ordered if other == producer)
    digest = hashlib.blake2b(digest_size=6)
    for other, sequence, row in ordered:
        digest.update(b"%b/%d/%d;" % (other, sequence, row))
    return f"{producer.hex()[:16]}-{first:010d}-{last:010d}-{digest.hexdigest()}.parquet"


def compact_name(inputs: Iterable[str]) -> str:
    """Name of the file that replaces `inputs`."""
    digest = hashlib.blake2b("\n".join(sorted(inputs)).encode(), digest_size=12)
    return f"{COMPACT_PREFIX}{digest.hexdigest()}.parquet"


def partitions(root: Path) -> Iterator[Path]:
    """Folders that hold files, in the order of time.

    Raises:
        ArchiveError: no such folder.
    """
    if not root.is_dir():
        raise ArchiveError(f"{root}: no such folder; give the folder that an archive was written to")
    yield from sorted(
        folder
        for folder in root.glob("date=*/hour=*/bucket=*")
        if folder.is_dir() and _PARTITION.fullmatch("/".join(folder.parts[-3:]))
    )


def temporary_files(root: Path) -> list[Path]:
    """What writers left that were killed."""
    return sorted(root.glob(f"date=*/hour=*/bucket=*/.*{TEMPORARY_SUFFIX}"))


def split_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files of a partition whose rows count, and those whose rows a compacted file holds as well.

    The second kind exists between two steps of a compaction, after a crash there, or when batches that were compacted
    are written again.
    """
    files = sorted(folder.glob("[!._]*.parquet"))
    replaced: set[str] = set()
    for path in files:
        if path.name.startswith(COMPACT_PREFIX):
            replaced.update(replaced_by(path))
    live = [path for path in files if path.name not in replaced]
    return live, [path for path in files if path.name in replaced]


def replaced_by(path: Path) -> list[str]:
    """Names of the files whose rows a compacted file holds.

    Raises:
        ArchiveError: the file is unreadable.
    """
    try:
        metadata: dict[bytes, bytes] = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"{path}: cannot be read as Parquet ({error}); remove it or restore it") from error
    names: list[str] = json.loads(metadata.get(REPLACES_KEY, b"[]"))
    return names


def live_files(root: Path) -> list[Path]:
    """Every file whose rows count, in the order of time.

    Raises:
        ArchiveError: no such folder, or no file in it.
    """
    files = [path for folder in partitions(root) for path in split_files(folder)[0]]
    if not files:
        raise ArchiveError(f"{root}: holds no archive files (date=…/hour=…/bucket=…/*.parquet)")
    return files


def make_folder(root: Path, folder: str) -> Path:
    """The partition's folder, created durably."""
    path = root
    for part in folder.split("/"):
        below = path / part
        if not below.is_dir():
            below.mkdir(exist_ok=True)
            sync_folder(path)
        path = below
    return path


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class WholeFile:
    """A file that appears under its name only when it is whole and on disk; otherwise it leaves nothing behind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(f".{path.name}{TEMPORARY_SUFFIX}")
        self._file: Any = None

    def __enter__(self) -> Any:
        self._file = self._temporary.open("wb")
        return self._file

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:
            self._file.close()
            self._temporary.unlink(missing_ok=True)
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self.path)
        sync_folder(self.path.parent)
