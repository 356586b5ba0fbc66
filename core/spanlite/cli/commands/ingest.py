"""Turn recordings into metric points and an archive.

A recording is a file of raw CUPTI activity buffers (X.bin or X.bin.xz, its description X.json beside it) or a kernel
table (X.parquet). Windows stay open until the end of the input, so that no span is late; --lateness gives that up for
bounded memory.

examples:
  spanlite ingest serve.bin.xz --points points.jsonl --archive traces/
  spanlite ingest day1.parquet day2.parquet --archive traces/ --buckets 4
  spanlite ingest serve.bin --points - --window 1s | head -1
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanlite.contract import catalogue
from spanlite.contract.errors import UsageError
from spanlite.runtime.durations import parse_duration_ns

if TYPE_CHECKING:
    from spanlite.cli.embedded import Embedded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="X.bin, X.bin.xz or X.parquet")
    parser.add_argument("--archive", type=Path, metavar="DIR", help="write all spans to this Parquet archive")
    parser.add_argument("--points", type=Path, metavar="FILE", help="write metric points as JSON lines; - for stdout")
    parser.add_argument("--batches", type=Path, metavar="FILE", help="write the SpanBatch messages (see spanlite cat)")
    parser.add_argument("--window", default="10s", help="width of the metric windows (default 10s)")
    parser.add_argument("--lateness", help="close windows this long after their end instead of at the end of the input")
    parser.add_argument("--top-k", type=int, default=500, help="kernels per GPU with points of their own (default 500)")
    parser.add_argument("--buckets", type=int, default=1, help="archive files per hour, a power of two (default 1)")
    parser.add_argument("--json", action="store_true", help="print the closing account as JSON on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar and no closing account")


def run(args: argparse.Namespace) -> int:
    """0 when every span was delivered, 3 when a valid one was dropped (and counted)."""
    from spanlite.agent.validate import REASONS
    from spanlite.cli.embedded import Embedded, open_source
    from spanlite.cli.output import progress_bar, staged_archive, whole_file, write_points
    from spanlite.contract.codec import encode_batch
    from spanlite.contract.delimited import write_delimited
    from spanlite.pipeline.archive.write import ArchiveWriter
    from spanlite.pipeline.embedded import Outputs
    from spanlite.pipeline.windows import WindowPolicy

    _check_flags(args)
    policy = WindowPolicy(
        width_ns=parse_duration_ns(args.window),
        lateness_ns=parse_duration_ns(args.lateness) if args.lateness else None,
    )
    sources = [open_source(path) for path in args.files]
    with ExitStack() as stack:
        archive = None
        if args.archive:
            archive = ArchiveWriter(stack.enter_context(staged_archive(args.archive)), buckets=args.buckets)
        outputs = Outputs()
        if args.points:
            lines = stack.enter_context(whole_file(args.points))
            outputs = replace(outputs, window_points=lambda points: write_points(lines, points))
        if args.batches:
            stream = stack.enter_context(whole_file(args.batches, binary=True))
            outputs = replace(outputs, batch=lambda batch: write_delimited(stream, encode_batch(batch)))
        with Embedded(outputs, policy=policy, archive=archive, top_k=args.top_k) as embedded:
            for path, source in zip(args.files, sources, strict=True):
                embedded.play(source, progress=progress_bar(path.name, quiet=args.quiet))
    account = _account(embedded)
    if args.json:
        print(json.dumps(account, indent=2))
    elif not args.quiet:
        print(
            f"{account['spans_sent']} spans delivered; dropped: {account['spans_dropped'] or 'none'}", file=sys.stderr
        )
    return 3 if set(account["spans_dropped"]) - set(REASONS) else 0


def _check_flags(args: argparse.Namespace) -> None:
    if not (args.archive or args.points or args.batches):
        raise UsageError("nothing to do: name one or more of --archive DIR, --points FILE, --batches FILE")
    if args.batches and args.batches == args.points:
        raise UsageError(f"--points and --batches would both write to {args.points}; give them two files")
    if args.json and "-" in (str(args.points), str(args.batches)):
        raise UsageError("--json and - would both write to stdout; give the points or batches a file")
    if args.top_k < 0:
        raise UsageError(f"--top-k must be 0 or more, not {args.top_k}")
    if args.buckets < 1 or args.buckets & (args.buckets - 1):
        raise UsageError(f"--buckets must be a power of two, not {args.buckets}")


def _account(embedded: Embedded) -> dict[str, Any]:
    """Where every span went."""
    pipeline = {
        name.removeprefix("spanlite_pipeline_"): {
            "/".join(labels.values()) or "all": value for labels, value in samples
        }
        for name, samples in embedded.pipeline.counters().items()
    }
    return {
        "spans_received": embedded.agent.value(catalogue.AGENT_SPANS_RECEIVED),
        "spans_sent": embedded.agent.value(catalogue.AGENT_SPANS_SENT),
        "spans_dropped": embedded.agent.by_label(catalogue.AGENT_SPANS_DROPPED),
        "stage_unknown": embedded.agent.value(catalogue.AGENT_SPANS_UNSTAGED),
        "records_skipped": embedded.agent.by_label(catalogue.AGENT_RECORDS_SKIPPED),
        "pipeline": pipeline,
    }
