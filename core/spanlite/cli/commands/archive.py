"""`spanlite archive`: what an archive holds, whether it is sound, and one file per hour and bucket."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from spanlite.contract.errors import UsageError
from spanlite.runtime.clock import Clock, SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `spanlite archive`."""
    parser.add_argument("action", choices=("ls", "verify", "compact"), help="what to do")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the archive's folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--closed-only",
        action="store_true",
        help="compact: leave alone the hours that have not ended ten minutes ago",
    )


_SETTLE_NS = 600_000_000_000


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Runs the command.

    Returns:
        0; for verify, 1 when anything is wrong.

    Raises:
        UsageError: a flag that the action does not know.
        ArchiveError: no archive there, or one that cannot be read or written.
    """
    if args.closed_only and args.action != "compact":
        raise UsageError("--closed-only belongs to `spanlite archive compact`")
    if args.action == "ls":
        return _ls(args.folder, as_json=args.json)
    if args.action == "verify":
        return _verify(args.folder, as_json=args.json)
    closed = (clock or SystemClock()).unix_ns() - _SETTLE_NS if args.closed_only else None
    return _compact(args.folder, closed, as_json=args.json)


def _ls(folder: Path, *, as_json: bool) -> int:
    from spanlite.pipeline.archive.listing import list_files

    entries = list_files(folder)
    if as_json:
        print(json.dumps([{**asdict(entry), "path": str(entry.path)} for entry in entries], indent=2))
        return 0
    print(f"{'spans':>12}{'bytes':>14}{'B/span':>8}  file")
    for entry in entries:
        note = "  (replaced by a compacted file)" if entry.replaced else ""
        path = entry.path.relative_to(folder)
        print(f"{entry.spans:>12,}{entry.bytes:>14,}{entry.bytes / max(entry.spans, 1):>8.2f}  {path}{note}")
    counted = [entry for entry in entries if not entry.replaced]
    spans, size = sum(entry.spans for entry in counted), sum(entry.bytes for entry in counted)
    print(f"{spans:>12,}{size:>14,}{size / max(spans, 1):>8.2f}  in {len(counted)} files")
    return 0


def _verify(folder: Path, *, as_json: bool) -> int:
    from spanlite.pipeline.archive.verify import verify

    report = verify(folder)
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


def _compact(folder: Path, closed_before_ns: int | None, *, as_json: bool) -> int:
    from spanlite.pipeline.archive.compact import compact

    done = compact(folder, closed_before_ns=closed_before_ns)
    if as_json:
        print(json.dumps([{**asdict(entry), "folder": str(entry.folder)} for entry in done], indent=2))
        return 0
    for entry in done:
        print(
            f"{entry.folder.relative_to(folder)}: {entry.files_before} files, {entry.bytes_before:,} bytes -> "
            f"{entry.files_after} file, {entry.bytes_after:,} bytes, {entry.spans:,} spans"
            f"{f', {entry.duplicates:,} duplicates dropped' if entry.duplicates else ''}"
        )
    print(f"{len(done)} partitions compacted")
    return 0
