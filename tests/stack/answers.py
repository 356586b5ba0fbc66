"""What Prometheus and the archive say about one run, asked in their own languages: PromQL and SQL."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import duckdb
from rich.console import Console
from rich.table import Table

from spanlite.cli.commands.demo import QUERY

_HISTOGRAM = "spanlite_kernel_duration_seconds"
_TIME = f"sum by (kernel) (histogram_sum({_HISTOGRAM}))"
_OCCUPANCY = "spanlite_kernel_theoretical_occupancy_ratio"
QUERIES = {
    "launches": "sum by (kernel) (spanlite_kernel_launches_total)",
    "GPU time": _TIME,
    "p50": f"histogram_quantile(0.5, sum by (kernel) ({_HISTOGRAM}))",
    "p99": f"histogram_quantile(0.99, sum by (kernel) ({_HISTOGRAM}))",
    "occupancy": f"sum by (kernel) ({_OCCUPANCY} * histogram_sum({_HISTOGRAM})) / {_TIME}",
}
"""Columns of the table by their PromQL; durations are native histograms, over all that was counted so far."""
_TOP = 8


def prometheus_answer(url: str) -> str:
    """Queries, and a table of the kernels with most GPU time, as text."""
    columns = {name: asked(url, query) for name, query in QUERIES.items()}
    top = sorted(columns["GPU time"], key=lambda kernel: -columns["GPU time"][kernel])[:_TOP]
    table = Table(title="Prometheus: kernels by GPU time", title_justify="left")
    table.add_column("kernel", overflow="ellipsis", no_wrap=True, max_width=48)
    for name in QUERIES:
        table.add_column(name, justify="right")
    for kernel in top:
        launches, seconds, p50, p99, occupancy = (columns[name].get(kernel, float("nan")) for name in QUERIES)
        shown = f"{launches:,.0f}", f"{1e3 * seconds:.1f} ms", f"{1e6 * p50:.2f} µs", f"{1e6 * p99:.2f} µs"
        table.add_row(kernel, *shown, f"{occupancy:.0%}")
    asks = "".join(f"  {name:<10}{query}\n" for name, query in QUERIES.items())
    return f"{_text(table)}  in PromQL:\n{asks}"


def archive_answer(archive: Path) -> str:
    """A query, and what DuckDB answers, as text."""
    query = QUERY.format(archive=archive)
    found = duckdb.connect().execute(query)
    table = Table(title="Archive: kernels by GPU time and stage", title_justify="left")
    for name, *_ in found.description or ():
        table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=48)
    for row in found.fetchall():
        table.add_row(*(f"{value:,.6g}" if isinstance(value, float) else str(value) for value in row))
    return f"{_text(table)}  in DuckDB:\n{query}\n"


def asked(url: str, query: str) -> dict[str, float]:
    """Value by kernel of an instant query; one without the label stands under the empty name."""
    with urllib.request.urlopen(f"{url}/api/v1/query?{urlencode({'query': query})}", timeout=30) as answer:  # noqa: S310  # http, loopback
        result = json.load(answer)["data"]["result"]
    return {each["metric"].get("kernel", ""): float(each["value"][1]) for each in result}


def counted_kernels(url: str) -> int:
    """Executions of all kernels that Prometheus knows of now."""
    return round(asked(url, "sum(spanlite_kernel_launches_total)").get("", 0))


def archived_spans(archive: Path) -> int:
    """Rows of the archive, ranges too."""
    return _rows(archive, "true")


def archived_kernels(archive: Path) -> int:
    """Rows of the archive that are kernels."""
    return _rows(archive, "kind = 'kernel'")


def _rows(archive: Path, where: str) -> int:
    if not any(archive.glob("date=*/**/*.parquet")):
        return 0
    query = f"SELECT count(*) FROM read_parquet('{archive}/date=*/**/*.parquet') WHERE {where}"  # noqa: S608  # our own words
    (count,) = duckdb.connect().execute(query).fetchone() or (0,)
    return int(count)


def _text(table: Table) -> str:
    console = Console(width=120)
    with console.capture() as text:
        console.print(table)
    return text.get()
