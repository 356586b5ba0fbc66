"""The same spans in other forms: bytes a span, size in % of JSON, error of times, traces that come out as they were.

    SPANLITE_RECORDINGS=FOLDER python benchmarks/bench_formats.py [--json FILE]

Takes serve_steady.parquet of that folder, else the slice in tests/data, and a CUPTI recording of a serving run in
tests/data/h200, in batches as the agent cuts them, 100,000 spans of each at most. Every form is encoded and decoded,
and what comes out is held against what went in. JSON has the fields of `spanlite cat`, times as whole nanoseconds; it
is read once with whole numbers, and once with doubles, as JavaScript and many others do. The kernel table has no
traces.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / part) for part in ("proto", "core", "agent", "replay"))]

from benchmarks._table import Figure, json_path, show  # noqa: E402 - the source roots come first
from benchmarks.bench_codec import recorded_batches, table_batches  # noqa: E402
from spanlite.contract.batch import Batch  # noqa: E402
from spanlite.replay.compare.formats import measure_formats  # noqa: E402

_RECORDING = _ROOT / "tests" / "data" / "h200" / "serve-cupti130500.bin.xz"
_COLUMNS = {
    "format": "format",
    "bytes_per_span": "B/span",
    "size_percent": "size %",
    "timing_error_ns": "timing error ns",
    "topology": "topology %",
}


def measure(batches: list[Batch]) -> list[dict[str, Figure]]:
    """A row for each form."""
    found = measure_formats(batches)
    assert found[-1]["timing_error_ns"] == 0, "batches are lossless"
    assert found[-1]["topology"] in (100, None), "batches keep relations"
    return [{called: "none" if row[name] is None else row[name] for name, called in _COLUMNS.items()} for row in found]


def main() -> None:
    """Measures both recordings, prints a table of each and, if asked, writes the figures as JSON."""
    path = json_path("the same spans in other forms")
    name, batches = table_batches()
    measured = {
        _RECORDING.name.removesuffix(".bin.xz"): measure(list(recorded_batches(_RECORDING))),
        name: measure(batches),
    }
    for label, rows in measured.items():
        show(f"{label}: the same spans in other forms", rows)
    if path:
        path.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
