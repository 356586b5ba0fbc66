"""See spanlite at work on a recorded run: 24 requests to a decoder on an NVIDIA H200.

The recording goes the real way: collector frames on a unix socket, agent, batches, event-time windows, /metrics and a
Parquet archive; no GPU, broker or JVM is needed. It ends by itself; --keep goes on serving /metrics until Ctrl-C.

examples:
  spanlite demo
  spanlite demo --speed 0 --json
  spanlite demo --keep --port 9464      and in another terminal: curl localhost:9464/metrics
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanlite.contract import catalogue
from spanlite.contract.errors import UsageError

if TYPE_CHECKING:
    from spanlite.cli.embedded import Embedded
    from spanlite.contract.points import Point, Series

RECORDING = Path(__file__).parent.parent / "recordings" / "serve-cupti130500.bin.xz"
QUERY = """SELECT stage, kernel, count(*) AS launches, median(duration_ns) AS p50_ns,
       any_value(theoretical_occupancy) AS occupancy
FROM read_parquet('{archive}/date=*/**/*.parquet', hive_partitioning = true)
WHERE kind = 'kernel' GROUP BY ALL ORDER BY sum(duration_ns) DESC LIMIT 10"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument(
        "--recording", type=Path, default=RECORDING, help="another recording (X.bin.xz) or kernel table"
    )
    parser.add_argument(
        "--speed", type=float, default=1.0, help="1 = as recorded (7 s), 2 = twice as fast, 0 = at once"
    )
    parser.add_argument("--port", type=int, default=9464, help="of /metrics on loopback; 0 takes a free one")
    parser.add_argument(
        "--archive", type=Path, metavar="DIR", help="where the Parquet goes (default: a new folder in /tmp)"
    )
    parser.add_argument("--keep", action="store_true", help="go on serving /metrics until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="no table; print the summary as JSON on stdout")


class _Newest:
    """Cumulative points by series; the pipeline's thread puts, the table's reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: dict[Series, Point] = {}

    def put(self, points: list[Point]) -> None:
        with self._lock:
            self._points.update((point.series, point) for point in points)

    def points(self) -> list[Point]:
        with self._lock:
            return list(self._points.values())


def run(args: argparse.Namespace) -> int:
    """0 when every span of the recording arrived in metrics and archive."""
    from spanlite.cli.embedded import Embedded, open_source
    from spanlite.contract.batch import Batch
    from spanlite.exporters.server import MetricsServer
    from spanlite.exporters.table import PointTable
    from spanlite.pipeline.archive.write import ArchiveWriter
    from spanlite.pipeline.embedded import Outputs
    from spanlite.pipeline.windows import SECOND_NS, WindowPolicy

    if not args.speed >= 0:
        raise UsageError(f"--speed must be 0 or more, not {args.speed}")
    source = open_source(args.recording)
    newest, table = _Newest(), PointTable()

    def total_points(points: list[Point]) -> None:
        newest.put(points)
        table.put(points)

    def seen(batch: Batch) -> None:
        table.gpu_info(batch.gpus, batch.resource.get("host.name", ""))

    outputs = Outputs(total_points=total_points, batch=seen)
    policy = WindowPolicy(width_ns=SECOND_NS, lateness_ns=SECOND_NS // 2)
    with MetricsServer(table, port=args.port) as server:
        with _archive(args.archive) as (archive, staging):
            embedded = Embedded(outputs, policy=policy, archive=ArchiveWriter(staging))
            table.set_counters(embedded.counters)
            with _live(newest, server.url, quiet=args.json), embedded:
                embedded.play(source, speed=args.speed)
        _report(args, embedded, newest.points(), archive=archive, url=server.url)
        if args.keep:
            _wait(server.url)
    complete = embedded.agent.value(catalogue.AGENT_SPANS_DROPPED) == 0
    return 0 if complete else 3


@contextmanager
def _archive(chosen: Path | None) -> Iterator[tuple[Path, Path]]:
    """The archive and where to write for it; a demo that fails leaves neither behind."""
    from spanlite.cli.output import staged_archive

    with ExitStack() as stack:
        root = chosen
        if root is None:
            root = Path(tempfile.mkdtemp(prefix="spanlite-demo-"))
            stack.callback(shutil.rmtree, root, ignore_errors=True)
        with staged_archive(root) as staging:
            yield root, staging
        stack.pop_all()


@contextmanager
def _live(newest: _Newest, url: str, *, quiet: bool) -> Iterator[None]:
    """A table that is redrawn four times a second; a line where there is no terminal."""
    from rich.console import Console
    from rich.live import Live

    from spanlite.cli.view import draw

    if quiet:
        yield
        return
    console = Console(stderr=True)
    console.print(f"metrics: {url}", highlight=False)
    if not console.is_terminal:
        yield
        return
    with Live(get_renderable=lambda: draw(newest.points()), console=console, refresh_per_second=4, transient=True):
        yield


def _report(args: argparse.Namespace, embedded: Embedded, points: list[Point], *, archive: Path, url: str) -> None:
    from rich.console import Console

    from spanlite.cli.view import draw, summary_json

    files = sorted(archive.rglob("*.parquet"))
    facts: dict[str, Any] = {
        "recording": args.recording.name,
        "spans_received": embedded.agent.value(catalogue.AGENT_SPANS_RECEIVED),
        "spans_sent": embedded.agent.value(catalogue.AGENT_SPANS_SENT),
        "spans_dropped": embedded.agent.by_label(catalogue.AGENT_SPANS_DROPPED),
        "stage_unknown": embedded.agent.value(catalogue.AGENT_SPANS_UNSTAGED),
        "wire_bytes": embedded.agent.value(catalogue.AGENT_BATCH_BYTES),
        "archive": str(archive),
        "archive_bytes": sum(file.stat().st_size for file in files),
        "files": [str(file) for file in files],
        "metrics": url,
        "query": QUERY.format(archive=archive),
    }
    if args.json:
        print(json.dumps({**facts, **summary_json(points)}, indent=2), flush=True)  # --keep goes on for long
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    spans = facts["spans_sent"]
    dropped = sum(facts["spans_dropped"].values())
    wire, parquet = (facts[name] / max(spans, 1) for name in ("wire_bytes", "archive_bytes"))
    lines = (
        f"{spans:,} spans: {dropped} dropped, {facts['stage_unknown']} of unknown stage",
        f"{wire:.2f} bytes a span on the wire, {parquet:.2f} in Parquet",
        f"archive: {archive}",
        "a query to try in DuckDB:",
        facts["query"],
    )
    with console.capture() as text:  # rich by itself would end the program when the reader of a pipe has left
        console.print(draw(points))
        console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)
    sys.stdout.write(text.get())
    sys.stdout.flush()


def _wait(url: str) -> None:
    """Until Ctrl-C."""
    print(f"serving {url} until Ctrl-C", file=sys.stderr)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return
