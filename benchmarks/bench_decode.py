"""Raw activity bytes to columns: records a second for each recording, the walk alone and the whole decode.

    python benchmarks/bench_decode.py [--json FILE] [--data FOLDER]

One thread; the best of many runs over bytes in memory. `buffers` decodes the recording as 8 MiB pieces, as an agent
receives it; `struct` reads one record after the other (kind and step only), for comparison.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from benchmarks._table import best_s  # noqa: E402
from spanlite.agent.activity import decode  # noqa: E402 - the source roots come first
from spanlite.agent.layouts import Layout  # noqa: E402
from spanlite.agent.recording import check_counts, chunks, read_recording  # noqa: E402
from spanlite.agent.validate import validate  # noqa: E402
from spanlite.agent.walk import walk  # noqa: E402

_BUFFER_BYTES = 8 << 20


def _one_by_one(data: bytes, layout: Layout) -> int:
    read, sizes, at, records = struct.Struct("<i").unpack_from, layout.sizes, 0, 0
    while at < len(data):
        at += sizes[read(data, at)[0]]
        records += 1
    return records


def measure(path: Path) -> dict[str, Any]:
    """The figures of one recording."""
    recording = read_recording(path)
    layout, data = recording.layout(), recording.data
    activity = decode(data, layout)
    check_counts(recording, activity)
    start, end, now = activity.kernels["start"], activity.kernels["end"], recording.unix_ns[1]
    pieces = list(chunks(recording, _BUFFER_BYTES))
    records = sum(activity.counts.values())
    return {
        "recording": path.name.removesuffix(".xz").removesuffix(".bin"),
        "mib": len(data) / 2**20,
        "records": records,
        "kernels": len(activity.kernels),
        "walk_ms": 1e3 * best_s(lambda: walk(data, layout)),
        "decode_ms": 1e3 * best_s(lambda: decode(data, layout)),
        "buffers_ms": 1e3 * best_s(lambda: [decode(piece, layout) for piece in pieces]),
        "validate_ms": 1e3 * best_s(lambda: validate(start, end, now_ns=now)),
        "struct_ms": 1e3 * best_s(lambda: _one_by_one(data, layout), runs=2),
    }


def main() -> None:
    """Measures every recording, prints a table and, if asked, writes the figures as JSON."""
    parser = argparse.ArgumentParser(description="raw activity bytes to columns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--data", type=Path, default=_ROOT / "tests" / "data" / "h200", metavar="FOLDER")
    arguments = parser.parse_args()
    rows = [measure(path) for path in sorted(arguments.data.glob("*.bin*"))]
    print(
        f"{'recording':<20}{'MiB':>6}{'records':>10}{'kernels':>9}{'walk ms':>9}{'M rec/s':>9}{'decode ms':>11}"
        f"{'M rec/s':>9}{'GiB/s':>7}{'buffers ms':>12}{'validate ms':>13}{'struct ms':>11}"
    )
    for row in rows:
        million, decoded_s = row["records"] / 1e6, row["decode_ms"] / 1e3
        print(
            f"{row['recording']:<20}{row['mib']:>6.1f}{row['records']:>10,}{row['kernels']:>9,}{row['walk_ms']:>9.2f}"
            f"{million / row['walk_ms'] * 1e3:>9.1f}{row['decode_ms']:>11.2f}{million / decoded_s:>9.1f}"
            f"{row['mib'] / 1024 / decoded_s:>7.2f}{row['buffers_ms']:>12.2f}{row['validate_ms']:>13.3f}"
            f"{row['struct_ms']:>11.1f}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
