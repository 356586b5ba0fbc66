"""Flags of `spanlite agent` that concern the hardware counters of its GPUs; without --counters nothing is sampled."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from spanlite.contract.errors import UsageError
from spanlite.runtime.clock import Clock

if TYPE_CHECKING:
    from spanlite.agent.counters.off import Hardware
    from spanlite.agent.counts import AgentCounts
    from spanlite.agent.outlet import Outlet

_HZ = (1.0, 20_000.0)


def add_counter_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds them."""
    group = parser.add_argument_group("hardware counters (docs/counters.md)")
    group.add_argument(
        "--counters", action="store_true", help="sample them: achieved occupancy of kernels, tensor cores, DRAM, L2"
    )
    group.add_argument(
        "--counters-hz", type=_hz, default=1000.0, metavar="N", help="samples a second (default %(default)g)"
    )
    group.add_argument(
        "--counters-gpus", type=_words, nargs="+", default=[], metavar="UUID", help="of these GPUs alone (default: all)"
    )
    group.add_argument("--counters-cupti", type=Path, metavar="PATH", help="libcupti (default: searched)")
    group.add_argument(
        "--counters-library", type=Path, metavar="PATH", help="libspanlite_counters.so (default: beside the agent)"
    )


def counters_of(args: argparse.Namespace) -> Callable[[Outlet, Clock, AgentCounts], Hardware]:
    """Makes what samples as the flags say, or does nothing.

    Raises:
        UsageError: the library was not built, or a file that is named is not there.
    """
    from spanlite.agent.counters.off import Off

    if not args.counters:
        return lambda _outlet, _clock, _counts: Off()
    from spanlite.agent.counters.library import CountersLibrary, find_library
    from spanlite.agent.counters.node import NodeCounters

    path, cupti = find_library(args.counters_library), args.counters_cupti
    if cupti is not None and not cupti.is_file():
        raise UsageError(f"--counters-cupti {cupti}: there is no such file; name a libcupti.so.12 or .13")
    gpus = frozenset(_flat(args.counters_gpus))
    return lambda outlet, clock, counts: NodeCounters(
        lambda: CountersLibrary(path, cupti), outlet, clock, counts, hz=args.counters_hz, gpus=gpus, topic=args.topic
    )


def _flat(found: list[str] | list[list[str]]) -> list[str]:
    """UUIDs of a list of lists, from the command line, or of a list, from elsewhere."""
    return [uuid for each in found for uuid in ([each] if isinstance(each, str) else each)]


def _words(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]


def _hz(text: str) -> float:
    least, most = _HZ
    try:
        hz = float(text)
    except ValueError:
        hz = 0.0
    if not least <= hz <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from {least:g} to {most:g}")
    return hz
