"""Writes batch_v1.bin, a batch as the first version of layout 1 wrote it.

    python tests/golden/make_batch.py FILE

Run once, when the layout was made. The committed file is not to be written again: it stands for the batches that lie
in topics and spools. A new layout revision gets a file of its own beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

_ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(_ROOT / part) for part in ("proto", "core")]

from spanlite.contract.batch import Batch, ClockAnchor, Gpu  # noqa: E402 - the source roots come first
from spanlite.contract.codec import encode_batch  # noqa: E402
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, SpanColumns, make_columns  # noqa: E402


def golden_columns() -> SpanColumns:
    """Seven rows: a range, three kernels (one out of order), a copy, a memory set, a weighted kernel."""
    strings = ("", "gemm", "_Z4gemmILi1EEvPf", "decode", "request:7", "µ-norm")
    configs = np.zeros(3, dtype=CONFIG)
    configs["kernel"], configs["name"] = [1, 4, 5], [2, 4, 5]
    configs["grid_x"], configs["block_x"] = [132, 0, 4_000_000_000], [256, 0, 1024]
    configs["active_warps"], configs["max_warps"], configs["limiter"] = [32, 0, 64], [64, 0, 64], [3, 0, 1]
    places = np.zeros(2, dtype=PLACE)
    places["gpu"], places["stream_id"], places["priority"] = [1, 0], [7, 0], [-5, 0]
    places["thread_id"] = [0, 18_446_744_073_709_551_610]
    nodes = np.zeros(2, dtype=NODE)
    nodes["graph_id"], nodes["graph_node_id"] = [0, 2], [0, 8_589_934_593]
    traces = np.zeros(1, dtype=TRACE)
    traces["id"] = np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff"), dtype="V16")
    traces["remote_parent"], traces["start_ns"] = 0xFEDCBA9876543210, 1_795_958_731_643_646_670
    first = 1_795_958_731_643_646_670
    return make_columns(
        first + np.array([0, 1_500, 4_000, 3_000, 9_000, 70_000, 80_000]),
        np.array([90_000, 2_000, 500, 700, 60_000, 1, 1_000]),
        tables=(strings, configs, places, nodes, traces),
        kind=np.array([4, 1, 1, 1, 2, 3, 1]),
        config=np.array([1, 0, 2, 0, 0, 0, 2]),
        place=np.array([1, 0, 0, 0, 0, 0, 0]),
        node=np.array([0, 0, 1, 1, 0, 0, 0]),
        stage=np.array([0, 3, 3, 3, 0, 0, 0]),
        trace=np.array([0, 0, 0, 0, 0, -1, -1]),
        parent=np.array([-1, 5, 5, 5, 5, -1, -1]),
        range_number=np.array([5, -1, -1, -1, -1, -1, -1]),
        correlation=np.array([0, 101, 102, 102, 110, 111, 4_294_967_295]),
        bytes=np.array([0, 0, 0, 0, 1 << 20, 64, 0]),
        weight=np.array([1, 1, 1, 1, 1, 1, 8]),
    )


def golden_batch() -> Batch:
    """What batch_v1.bin holds."""
    return Batch(
        producer=bytes.fromhex("000102030405060708090a0b0c0d0e0f"),
        sequence=3,
        session=0x0123456789ABCDEF,
        first_row=8_192,
        emit_ns=1_795_958_731_700_000_000,
        columns=golden_columns(),
        resource={"host.name": "node-1", "process.pid": "4242"},
        gpus=(Gpu("GPU-12345678", 0, "NVIDIA H200", 9, 0, 132, "0000:18:00.0"),),
        clock=ClockAnchor(1_795_958_731_643_646_670, 1_795_958_731_643_646_900, 120),
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(encode_batch(golden_batch()))
