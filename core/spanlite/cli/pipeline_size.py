"""How much Kafka, Flink, Prometheus and disk a fleet of GPUs needs, with the arithmetic.

Rates are those of the busiest minute. What rests on a figure that nobody has measured yet is marked with ~; --figures
takes what the benchmarks have measured on your machines.

examples:
  spanlite pipeline size --gpus 100 --kernels-per-second 50000
  spanlite pipeline size --gpus 10000 --kernels-per-second 50000 --retention 24h --brief
  spanlite pipeline size --gpus 8 --kernels-per-second 2e5 --figures build/bench/ --json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanlite.contract.errors import UsageError
from spanlite.runtime.durations import parse_duration_ns

if TYPE_CHECKING:
    from spanlite.pipeline.sizing.figures import Figure
    from spanlite.pipeline.sizing.request import Request
    from spanlite.pipeline.sizing.sheet import Line

_MOST = 1e15
_DURATIONS = {
    "window": ("10s", "width of the metric windows"),
    "lateness": ("2s", "how long a window waits for stragglers"),
    "retention": ("7d", "of spans in Kafka"),
    "archive_retention": ("30d", "of the Parquet files"),
    "flush": ("1s", "an agent sends what it has so often"),
    "checkpoint_interval": ("30s", "of both jobs"),
    "archive_flush": ("60s", "--flush of the archive job"),
    "scrape_timeout": ("10s", "Prometheus's"),
}
_NUMBERS = {
    "processes_per_gpu": (1, "traced processes"),
    "gpus_per_node": (8, "GPUs that share an agent"),
    "series_per_gpu": (500, "kernel × launch configuration × stage × workload"),
    "replication": (3, "copies of each partition"),
    "batch_spans": (65_536, "most spans of a batch"),
    "file_spans": (1 << 20, "--file-spans of the archive job"),
    "buckets": (1, "--buckets of the archive job"),
    "headroom": (0.5, "share of a core that the average subtask is busy at the peak"),
    "broker_mbps": (100.0, "MB/s that a broker writes, copies included"),
    "rate_spread": (0.5, "how unequal the GPUs' rates are: sigma of a lognormal, 0 for equal"),
}


def add_arguments(group: argparse.ArgumentParser) -> None:
    """Flags."""
    group.add_argument("--gpus", required=True, metavar="N", help="GPUs of the fleet")
    group.add_argument("--kernels-per-second", required=True, metavar="N", help="of one GPU, copies and sets included")
    for name, (default, text) in _NUMBERS.items():
        group.add_argument(_flag(name), default=str(default), metavar="N", help=f"{text} (default %(default)s)")
    for name, (form, text) in _DURATIONS.items():
        group.add_argument(_flag(name), default=form, metavar="TIME", help=f"{text} (default %(default)s)")
    group.add_argument(
        "--mode", default="thread", metavar="MODE", help="of the metrics job: thread (default) or process"
    )
    group.add_argument("--bytes-per-span", metavar="N", help="on the wire (default: reckoned; 3.0 to 3.7 was measured)")
    group.add_argument("--archive-bytes-per-span", metavar="N", help="in compacted Parquet (default: measured, 3.5)")
    group.add_argument(
        "--figures", type=Path, metavar="PATH", help="JSON that a benchmark wrote, or a folder of such files"
    )
    group.add_argument("--brief", action="store_true", help="leave the arithmetic out")
    group.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Prints every quantity and what to do: 0.

    Raises:
        UsageError: a flag is off, or the figures cannot be read.
    """
    from spanlite.pipeline.sizing.advice import advise
    from spanlite.pipeline.sizing.figures import FIGURES, read_figures
    from spanlite.pipeline.sizing.reckon import size

    request = _request(args)
    figures = read_figures(args.figures) if args.figures else FIGURES
    lines = size(request, figures)
    advice = advise(request, figures, lines)
    if args.json:
        print(json.dumps(_json(request, figures, lines, advice), indent=2))
        return 0
    _print(lines, brief=args.brief)
    print("\nAdvice")
    for sentence in advice:
        print(f"  - {sentence}")
    return 0


def _request(args: argparse.Namespace) -> Request:
    from spanlite.pipeline.sizing.request import Request

    values: dict[str, Any] = {"mode": args.mode}
    for field in fields(Request):
        name = field.name.removesuffix("_s")
        text = getattr(args, name)
        if name in _DURATIONS:
            values[field.name] = _seconds(_flag(name), text)
        elif field.name != "mode" and text is not None:
            number = _number(_flag(name), text)
            whole = str(field.type) == "int"
            if whole and number != int(number):
                raise UsageError(f"{_flag(name)} is {text}; give a whole number")
            values[field.name] = int(number) if whole else float(number)
    return Request(**values)


def _number(flag: str, text: str) -> Decimal:
    try:
        number = Decimal(text.replace(",", "").replace("_", ""))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > _MOST:
        raise UsageError(f"{flag} is {text!r}; give a number, such as 50000 or 5e4, up to {_MOST:g}")
    return number


def _seconds(flag: str, text: str) -> float:
    """Seconds of a duration, which here may also be in days."""
    days = text.strip().endswith("d")
    try:
        return parse_duration_ns(f"{text.strip()[:-1]}h" if days else text) / 1e9 * (24 if days else 1)
    except UsageError as error:
        raise UsageError(
            f"{flag}: {text!r} is no duration; write a number and a unit, such as 10s, 6h or 7d"
        ) from error


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _print(lines: Sequence[Line], *, brief: bool) -> None:
    from spanlite.pipeline.sizing.sheet import quantity

    width = max(len(line.title) for line in lines)
    section = ""
    for line in lines:
        if line.section != section:
            section = line.section
            print(f"\n{section}" if line is not lines[0] else section)
        mark = "~" if line.assumed else " "
        result = f"  {line.title:<{width}} {mark}{quantity(line.value, line.unit):>16}"
        print(result if brief else f"{result}   {line.formula} = {line.numbers}")
    if any(line.assumed for line in lines):
        print("\n~ rests on a figure that is assumed, not measured: --figures takes measured ones")


def _json(
    request: Request, figures: Mapping[str, Figure], lines: Sequence[Line], advice: Sequence[str]
) -> dict[str, object]:
    return {
        "request": asdict(request),
        "figures": {name: asdict(figure) for name, figure in figures.items()},
        "lines": [asdict(line) for line in lines],
        "advice": list(advice),
    }
