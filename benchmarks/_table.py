"""What the benchmarks share: a table on the terminal, the figures as JSON, the best of several runs."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Figure = float | int | str


def best_s(call: Callable[[], object], runs: int = 7, clock: Callable[[], float] = time.perf_counter) -> float:
    """Least time of several calls: what the machine can do when nothing disturbs it.

    Args:
        clock: wall time, or time.process_time: what a core must give, whoever else the machine works for.
    """
    best = float("inf")
    for _ in range(runs):
        begin = clock()
        call()
        best = min(best, clock() - begin)
    return best


def json_path(description: str) -> Path | None:
    """The command line of a benchmark: where --json says the figures go, if anywhere."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    path: Path | None = parser.parse_args().json
    return path


def show(title: str, rows: Sequence[Mapping[str, Figure]], path: Path | None = None) -> None:
    """Prints rows under their common columns and, if asked, writes them as JSON."""
    cells = [list(rows[0]), *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(cells[0]))]
    print(title)
    for line in cells:
        print(
            "  ".join(
                cell.rjust(width) if at else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
        )
    if path:
        path.write_text(json.dumps({"title": title, "rows": [dict(row) for row in rows]}, indent=1) + "\n")


def _text(value: Figure) -> str:
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
