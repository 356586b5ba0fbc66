"""`spanlite occupancy`: theoretical occupancy of one launch, or a check against a CSV of Nsight Compute."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from spanlite.contract.errors import UsageError

if TYPE_CHECKING:
    from spanlite.agent.ncu_compare import Difference
    from spanlite.agent.occupancy import Occupancy

_KERNEL_WIDTH = 48
_LIMITS = ("warps", "blocks", "registers", "shared_memory", "barriers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `spanlite occupancy`."""
    parser.add_argument("--cc", metavar="MAJOR.MINOR", help="compute capability of the GPU, such as 9.0")
    parser.add_argument("--block", metavar="X[,Y[,Z]]", help="threads of a block, such as 256 or 32,4,1")
    parser.add_argument("--registers", type=int, metavar="N", help="registers per thread")
    parser.add_argument("--static-shared", type=int, metavar="BYTES", help="static shared memory per block (0)")
    parser.add_argument("--dynamic-shared", type=int, metavar="BYTES", help="dynamic shared memory per block (0)")
    parser.add_argument(
        "--shared-config",
        type=int,
        metavar="BYTES",
        help="shared memory that the SM is set to, rounded up to a size that exists (the largest)",
    )
    parser.add_argument("--barriers", type=int, metavar="N", help="barriers per block (unknown: not limiting)")
    parser.add_argument("--ncu", type=Path, metavar="FILE.csv", help="compare with what Nsight Compute printed")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Runs the command.

    Returns:
        0; with --ncu, 1 when any figure differs.

    Raises:
        UsageError: flags missing, malformed or at odds, or an unknown compute capability.
        RecordingError: the CSV cannot be read.
    """
    launch = (args.cc, args.block, args.registers, args.static_shared, args.dynamic_shared)
    given = any(value is not None for value in (*launch, args.shared_config, args.barriers))
    if args.ncu is not None:
        if given:
            raise UsageError("--ncu takes its launches from the file; leave out the flags of a single launch")
        return _compare(args.ncu, as_json=args.json)
    if None in launch[:3]:
        raise UsageError("give --cc, --block and --registers of a launch, or --ncu FILE.csv")
    return _single(args)


def _single(args: argparse.Namespace) -> int:
    from spanlite.agent.occupancy import occupancy, sm_limits

    threads = _parse_block(args.block)
    result = occupancy(
        sm_limits(*_parse_capability(args.cc)),
        threads_per_block=threads,
        registers_per_thread=args.registers,
        static_shared_memory=args.static_shared or 0,
        dynamic_shared_memory=args.dynamic_shared or 0,
        shared_memory_config=args.shared_config,
        barriers=args.barriers or 0,
    )
    report = _report(result)
    if args.json:
        print(json.dumps({"compute_capability": args.cc, "threads_per_block": threads, **report}, indent=2))
        return 0
    print(f"{'limit':<16}{'blocks per SM':>14}")
    for name in _LIMITS:
        mark = "  <- limits" if name == report["limiter"] else ""
        print(f"{name.replace('_', ' '):<16}{report['blocks_by_' + name]:>14}{mark}")
    print(
        f"theoretical occupancy {report['occupancy_percent']:.2f} %: {report['active_blocks']} blocks, "
        f"{report['active_warps']} of {report['max_warps']} warps per SM"
    )
    if report["active_blocks"] == 0:
        print("such a launch cannot run on this GPU")
    print(
        f"allocated: {report['registers_allocated']} registers per thread, {report['shared_memory_allocated']} bytes "
        f"of shared memory per block ({report['shared_memory_driver']} of them the driver's)"
    )
    return 0


def _report(result: Occupancy) -> dict[str, int | float | str]:
    from spanlite.contract.columns import Limiter

    names = (
        *(f"blocks_by_{name}" for name in _LIMITS),
        "active_blocks",
        "active_warps",
        "max_warps",
        "registers_allocated",
        "shared_memory_allocated",
        "shared_memory_driver",
    )
    report: dict[str, int | float | str] = {name: int(getattr(result, name)[0]) for name in names}
    report["limiter"] = Limiter(int(result.limiter[0])).name.lower()
    report["occupancy_percent"] = float(result.ratio[0] * 100)
    return report


def _compare(path: Path, *, as_json: bool) -> int:
    from spanlite.agent.ncu import read_ncu_csv
    from spanlite.agent.ncu_compare import compare

    launches = read_ncu_csv(path)
    differences = compare(launches)
    different = len({difference.line for difference in differences})
    total = len(launches.kernels)
    if as_json:
        rows = [
            {"line": row.line, "kernel": row.kernel, "field": row.field, "ours": row.ours, "ncu": row.theirs}
            for row in differences
        ]
        summary = {"launches": total, "equal": total - different, "different": different, "differences": rows}
        print(json.dumps(summary, indent=2))
    else:
        _print_differences(differences)
        print(f"{total} launches: {total - different} equal, {different} different")
    return 1 if differences else 0


def _print_differences(differences: list[Difference]) -> None:
    if not differences:
        return
    print(f"{'line':>6}  {'kernel':<{_KERNEL_WIDTH}}  {'field':<40}{'ours':>10}{'ncu':>10}")
    for row in differences:
        kernel = row.kernel if len(row.kernel) <= _KERNEL_WIDTH else row.kernel[: _KERNEL_WIDTH - 1] + "…"
        print(f"{row.line:>6}  {kernel:<{_KERNEL_WIDTH}}  {row.field:<40}{row.ours:>10.10g}{row.theirs:>10.10g}")


def _parse_capability(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", text)
    if match is None:
        raise UsageError(f"--cc {text!r} is not MAJOR.MINOR, such as 9.0")
    return int(match[1]), int(match[2])


def _parse_block(text: str) -> int:
    sizes = text.split(",")
    if len(sizes) > 3 or not all(re.fullmatch(r"\d{1,9}", size.strip()) for size in sizes):
        raise UsageError(f"--block {text!r} is not X, X,Y or X,Y,Z, such as 256 or 32,4,1")
    threads = 1
    for size in sizes:
        threads *= int(size)
    return threads
