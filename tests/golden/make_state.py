"""Writes progress_v1.bin and partial_v1.bin, a stream job's state as the first version of format 1 wrote it.

    python tests/golden/make_state.py FOLDER

Run once, when the format was made. The committed files are not to be written again: they stand for the savepoints of
jobs that are to be upgraded. A new format gets files of its own beside them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(_ROOT / part) for part in ("proto", "core")]

from spanlite.contract.state import (  # noqa: E402 - the source roots come first
    BUCKET_DTYPES,
    ROW_DTYPES,
    Progress,
    encode_partial,
    encode_progress,
)


def golden_progress() -> Progress:
    """Three runs, up to the last sequence that there is, and a window before 1970."""
    return Progress(((0, 41), (43, 43), (2**63, 2**64 - 1)), 1_795_958_731_643_646_670, -179_595_873)


def golden_partial() -> tuple[list[bytes], dict[str, NDArray[Any]]]:
    """Three rows of two series: one before 1970 of weight 8, one of two spans, one copy as long as can be."""
    values: dict[str, list[int]] = {
        "window": [-3, 179_595_873, 179_595_873],
        "series_index": [0, 0, 1],
        "count": [8, 2, 1],
        "spans": [1, 2, 1],
        "sum_ns": [8000, 300, 2**62],
        "min_ns": [1000, 100, 2**62],
        "max_ns": [1000, 200, 2**62],
        "warp_ns": [8000 * 48, 300 * 48, 0],
        "bytes": [0, 0, 1 << 40],
        "exemplar_span": [1, 2**64 - 1, 0x0123456789ABCDEF],
        "exemplar_start_ns": [-29_999_999_000, 1_795_958_731_643_646_670, 1_795_958_731_643_646_671],
        "buckets": [1, 2, 1],
        "bucket_index": [-637, -743, -711, 1032],
        "bucket_count": [8, 1, 1, 1],
    }
    dtypes = ROW_DTYPES | BUCKET_DTYPES
    columns: dict[str, NDArray[Any]] = {name: np.array(each, dtype=dtypes[name]) for name, each in values.items()}
    columns["exemplar_trace"] = np.frombuffer(bytes(range(16)) + bytes(32), dtype="V16")
    return [b"\x0a\x05GPU-1\x10\x01\x1a\x06gemm#1", b"\x10\x02"], columns


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "progress_v1.bin").write_bytes(encode_progress(golden_progress()))
    (folder / "partial_v1.bin").write_bytes(encode_partial(*golden_partial()))
