"""Flags of `spanlite agent` that concern its node: who connects, how much they may send, who they are, who is told."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spanlite.contract.errors import UsageError
from spanlite.runtime import settings
from spanlite.runtime.clock import Clock
from spanlite.runtime.sizes import parse_size

if TYPE_CHECKING:
    from spanlite.agent.counts import AgentCounts
    from spanlite.agent.headsampling import HeadSampler
    from spanlite.agent.identity.identifier import Identifier
    from spanlite.agent.quota import Quotas
    from spanlite.agent.tracing import Tracing

_SOURCES = ("kernel", "kubelet", "nvml")
_KUBELET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_KUBELET_FRESH_S = 1.0
"""An answer that was asked for so long before a process connected names its pod: containers start more slowly."""
_NVML_FRESH_S = 10.0
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
Counters = Callable[[], Mapping[str, Iterable[tuple[Mapping[str, str], float]]]]


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds them; a quota of 0 is none."""
    group = parser.add_argument_group("traced processes")
    group.add_argument(
        "--socket-group", metavar="GROUP", help="whose members may connect, too (default: the agent's user alone)"
    )
    group.add_argument(
        "--peer-bytes", default="0", metavar="SIZE", help="a second, of each; 0: any number (default %(default)s)"
    )
    group.add_argument(
        "--peer-spans", type=_number, default=0, metavar="N", help="a second, of each, likewise (default %(default)s)"
    )
    group.add_argument(
        "--uid-connections", type=_positive, default=1024, metavar="N", help="of one user at once (default %(default)s)"
    )
    group.add_argument(
        "--uid-rate",
        type=_number,
        default=100,
        metavar="N",
        help="new connections a second of one user; 0: any number (default %(default)s)",
    )
    group.add_argument(
        "--frame-memory", default="256MiB", metavar="SIZE", help="for frames of all together (default %(default)s)"
    )
    group.add_argument(
        "--identity",
        default=",".join(_SOURCES),
        metavar="SOURCES",
        help="who tells who a process is, or none: its own word then (default %(default)s)",
    )
    group.add_argument(
        "--sample-traces",
        type=_positive,
        default=1,
        metavar="N",
        help="keep one trace in N, whole, which then stands for N (default %(default)s: all)",
    )
    group.add_argument("--kubelet-socket", type=Path, default=_KUBELET, metavar="PATH", help="(default %(default)s)")


def quotas_of(args: argparse.Namespace) -> Quotas:
    """The bounds that the flags give.

    Raises:
        UsageError: a size is none.
    """
    from spanlite.agent.quota import Quotas

    return Quotas(
        bytes_per_s=0 if args.peer_bytes == "0" else parse_size(args.peer_bytes),
        spans_per_s=args.peer_spans,
        uid_connections=args.uid_connections,
        uid_rate=args.uid_rate,
        memory_bytes=parse_size(args.frame_memory),
    )


def sampler_of(args: argparse.Namespace) -> HeadSampler:
    """Which traces are kept.

    Raises:
        UsageError: N is too large.
    """
    from spanlite.agent.headsampling import HeadSampler

    return HeadSampler(args.sample_traces)


def identifier_of(args: argparse.Namespace, clock: Clock, counts: AgentCounts) -> Identifier | None:
    """Who finds out identities; None where processes are to be believed.

    Raises:
        UsageError: a source is not known, or kernel is missing: the others mean nothing without it.
    """
    from spanlite.agent.identity.identifier import Identifier
    from spanlite.agent.identity.kubelet import list_containers
    from spanlite.agent.identity.nvml import read_inventory
    from spanlite.agent.identity.source import Source

    chosen = [word.strip() for word in args.identity.split(",")]
    if chosen == ["none"]:
        return None
    unknown = [word for word in chosen if word not in _SOURCES]
    if unknown or "kernel" not in chosen:
        what = f"{unknown[0]!r} is no source of identities" if unknown else "kernel is missing"
        raise UsageError(f"--identity {args.identity}: {what}; write none, or kernel and any of kubelet, nvml")
    containers = Source("kubelet", lambda: list_containers(args.kubelet_socket), clock, fresh_s=_KUBELET_FRESH_S)
    inventory = Source("nvml", read_inventory, clock, fresh_s=_NVML_FRESH_S)
    return Identifier(
        counts,
        containers=containers if "kubelet" in chosen else None,
        inventory=inventory if "nvml" in chosen else None,
    )


def endpoint_of(args: argparse.Namespace) -> str | None:
    """Where OTLP goes; None: nowhere.

    Raises:
        UsageError: it is no URL of HTTP.
    """
    endpoint: str | None = args.otlp_endpoint or settings.inherited().get(_ENDPOINT)
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise UsageError(f"{endpoint!r} is no endpoint; write a URL such as http://localhost:4318 (OTLP over HTTP)")
    return endpoint


@contextmanager
def telemetry_to(endpoint: str | None, counters: Counters) -> Iterator[Tracing]:
    """Exports by OTLP while the context lasts, if there is an endpoint; where spans of the agent's own work go.

    Raises:
        UsageError: the libraries for it are not installed.
    """
    from spanlite.agent.tracing import NoTracing

    if not endpoint:
        yield NoTracing()
        return
    try:
        from spanlite.agent.otel import Telemetry
    except ModuleNotFoundError as error:
        raise UsageError(f"--otlp-endpoint needs {error.name}: pip install 'spanlite[otel]'") from error
    telemetry = Telemetry(endpoint, counters, {"host.name": os.uname().nodename})
    try:
        yield telemetry
    finally:
        telemetry.stop()


def _number(text: str) -> int:
    """A whole number from 0 on."""
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def _positive(text: str) -> int:
    number = _number(text)
    if not number:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return number
