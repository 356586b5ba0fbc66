"""`spanlite archive`: what an archive holds, whether it is sound, and one file per hour and bucket.

DIR is a folder, or s3://bucket/prefix with options such as ?endpoint_override=host:port&scheme=http&region=…; key and
secret are those of the AWS environment, profile or role.

examples:
  spanlite archive ls traces/
  spanlite archive compact traces/ --closed-only
  spanlite archive compact 's3://traces/prod?region=eu-central-1' --every 10m --json
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from spanlite.cli.stopping import Stopping
from spanlite.contract.errors import ArchiveError, UsageError
from spanlite.runtime.clock import Clock, SystemClock
from spanlite.runtime.durations import parse_duration_ns

if TYPE_CHECKING:
    from spanlite.pipeline.archive.compact import Compaction
    from spanlite.pipeline.archive.port import Store

_SETTLE_NS = 600_000_000_000
_NAP_S = 0.2
"""How often a schedule that waits looks whether it shall end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `spanlite archive`."""
    parser.add_argument("action", choices=("ls", "verify", "compact"), help="what to do")
    parser.add_argument("folder", metavar="DIR", help="the archive: a folder, or s3://bucket/prefix?…")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--closed-only",
        action="store_true",
        help="compact: leave alone the hours that have not ended ten minutes ago",
    )
    parser.add_argument(
        "--every",
        metavar="TIME",
        help="compact: again and again, such as 10m, until SIGTERM or Ctrl-C; implies --closed-only",
    )


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Runs the command.

    Returns:
        0; for verify, 1 when anything is wrong.

    Raises:
        UsageError: a flag that the action does not know.
        ArchiveError: no archive there, or one that cannot be read or written.
    """
    for flag, given in (("--closed-only", args.closed_only), ("--every", args.every is not None)):
        if given and args.action != "compact":
            raise UsageError(f"{flag} belongs to `spanlite archive compact`")
    every_ns = parse_duration_ns(args.every) if args.every is not None else None
    from spanlite.pipeline.archive.store import open_store

    store = open_store(args.folder)
    clock = clock or SystemClock()
    if args.action == "ls":
        return _ls(store, as_json=args.json)
    if args.action == "verify":
        return _verify(store, as_json=args.json)
    if every_ns is not None:
        return _schedule(store, clock, every_ns, as_json=args.json)
    return _compact(store, clock.unix_ns() - _SETTLE_NS if args.closed_only else None, as_json=args.json)


def _ls(store: Store, *, as_json: bool) -> int:
    from spanlite.pipeline.archive.listing import list_files
    from spanlite.pipeline.archive.port import label

    entries = list_files(store)
    if as_json:
        rows = [asdict(entry) for entry in entries]
        print(json.dumps([{"path": label(store, row.pop("name")), **row} for row in rows], indent=2))
        return 0
    print(f"{'spans':>12}{'bytes':>14}{'B/span':>8}  file")
    for entry in entries:
        note = "  (replaced by a compacted file)" if entry.replaced else ""
        print(f"{entry.spans:>12,}{entry.bytes:>14,}{entry.bytes / max(entry.spans, 1):>8.2f}  {entry.name}{note}")
    counted = [entry for entry in entries if not entry.replaced]
    spans, size = sum(entry.spans for entry in counted), sum(entry.bytes for entry in counted)
    print(f"{spans:>12,}{size:>14,}{size / max(spans, 1):>8.2f}  in {len(counted)} files")
    return 0


def _verify(store: Store, *, as_json: bool) -> int:
    from spanlite.pipeline.archive.verify import verify

    report = verify(store)
    if as_json:
        print(json.dumps({**asdict(report), "parent_share": report.parent_share}, indent=2))
    else:
        for problem in report.problems:
            print(problem)
        print(
            f"{report.files} files, {report.spans:,} spans, {report.bytes:,} bytes; {report.with_parent:,} spans name "
            f"a parent, {100 * report.parent_share:.2f} % of them found; {len(report.problems)} problems"
        )
    return 1 if report.problems else 0


def _compact(store: Store, closed_before_ns: int | None, *, as_json: bool) -> int:
    from spanlite.pipeline.archive.compact import compact
    from spanlite.pipeline.archive.port import label

    done = compact(store, closed_before_ns=closed_before_ns)
    if as_json:
        print(json.dumps([{**asdict(entry), "folder": label(store, entry.folder)} for entry in done], indent=2))
        return 0
    for entry in done:
        print(
            f"{entry.folder}: {entry.files_before} files, {entry.bytes_before:,} bytes -> "
            f"{entry.files_after} file, {entry.bytes_after:,} bytes, {entry.spans:,} spans"
            f"{f', {entry.duplicates:,} duplicates dropped' if entry.duplicates else ''}"
        )
    print(f"{len(done)} partitions compacted")
    return 0


def _schedule(store: Store, clock: Clock, every_ns: int, *, as_json: bool) -> int:
    """Rounds until SIGTERM or Ctrl-C.

    The first one must succeed; one that fails later says so, and the next one tries again.
    """
    from spanlite.pipeline.archive.compact import compact

    with Stopping() as stopping:
        first = True
        while not stopping.told:
            begin_ns = clock.monotonic_ns()
            try:
                done = compact(store, closed_before_ns=clock.unix_ns() - _SETTLE_NS, stop=lambda: stopping.told)
            except ArchiveError as error:
                if first:
                    raise
                print(f"spanlite: {error}", file=sys.stderr, flush=True)
            else:
                print(_round(done, clock.unix_ns(), clock.monotonic_ns() - begin_ns, as_json=as_json), flush=True)
            first = False
            while not stopping.told and (left_ns := begin_ns + every_ns - clock.monotonic_ns()) > 0:
                clock.sleep_s(min(_NAP_S, left_ns / 1e9))
    return 0


def _round(done: list[Compaction], unix_ns: int, took_ns: int, *, as_json: bool) -> str:
    """One line that says what a round did."""
    keys = ("files_before", "files_after", "bytes_before", "bytes_after", "spans", "duplicates")
    total = {key: sum(getattr(entry, key) for entry in done) for key in keys}
    if as_json:
        return json.dumps({"unix_ns": unix_ns, "seconds": took_ns / 1e9, "partitions": len(done), **total})
    return (
        f"{np.datetime64(unix_ns // 10**9, 's')}Z: {len(done)} partitions, {total['files_before']} files, "
        f"{total['bytes_before']:,} bytes -> {total['files_after']} files, {total['bytes_after']:,} bytes, "
        f"{total['spans']:,} spans in {took_ns / 1e9:.1f} s"
    )
