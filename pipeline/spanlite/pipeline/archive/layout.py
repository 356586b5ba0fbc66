"""Where a span's row lies: folders by hour and bucket of its trace, file names by the batches that they hold."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64, UInt64
from spanlite.contract.errors import ArchiveError
from spanlite.contract.ids import mix64

HOUR_NS = 3_600_000_000_000
COMPACT_PREFIX = "compact-"
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


def is_partition(folder: str) -> bool:
    """Whether a name is that of a partition's folder."""
    return _PARTITION.fullmatch(folder) is not None


def parse_partition(folder: str) -> tuple[int, int]:
    """Hours since 1970 and bucket of a partition's folder.

    Raises:
        ArchiveError: the name is not that of such a folder.
    """
    match = _PARTITION.fullmatch(folder)
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
    return f"{producer_prefix(producer)}{first:010d}-{last:010d}-{digest.hexdigest()}.parquet"


def producer_prefix(producer: bytes) -> str:
    """How the names of the files of one producer begin."""
    return f"{producer.hex()[:16]}-"


def compact_name(inputs: Iterable[str]) -> str:
    """Name of the file that replaces `inputs`."""
    digest = hashlib.blake2b("\n".join(sorted(inputs)).encode(), digest_size=12)
    return f"{COMPACT_PREFIX}{digest.hexdigest()}.parquet"
