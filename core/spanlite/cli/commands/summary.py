"""`spanlite summary`: kernels of an archive by GPU time, as CSV like `nsys stats --report cuda_gpu_kern_sum`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `spanlite summary`."""
    parser.add_argument("folder", metavar="DIR", help="the archive: a folder, or s3://bucket/prefix?…")
    parser.add_argument("--by", choices=("stage", "config"), help="split kernels by stage or by launch configuration")
    parser.add_argument("--base", choices=("demangled", "mangled"), default="demangled", help="how names are written")
    parser.add_argument("--kind", choices=("kernel", "memcpy", "memset"), default="kernel", help="which spans (kernel)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Runs the command.

    Returns:
        0.

    Raises:
        ArchiveError: no archive there, or a damaged file.
    """
    from spanlite.pipeline.summary import CONFIG_KEY, summarize, to_csv

    by: tuple[str, ...] = {"stage": ("stage",), "config": CONFIG_KEY}.get(args.by, ())
    lines = summarize(args.folder, by=by, kind=args.kind, pretty=args.base == "demangled")
    if args.json:
        rows = [{**asdict(line), "key": dict(zip(by, line.key, strict=True))} for line in lines]
        print(json.dumps(rows, indent=2))
    else:
        print(to_csv(lines, by), end="")
    return 0
