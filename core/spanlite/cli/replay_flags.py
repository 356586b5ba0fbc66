"""The flags of `spanlite replay run`, and the settings that they make."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from spanlite.cli.kafka_flags import add_kafka_arguments
from spanlite.cli.replay_cuda_flags import add_cuda_arguments
from spanlite.cli.replay_http_flags import add_http_arguments
from spanlite.contract.errors import UsageError
from spanlite.runtime.clock import Clock
from spanlite.runtime.durations import parse_duration_ns
from spanlite.transport.topics import PARTITIONS

if TYPE_CHECKING:
    from spanlite.replay.paced import Pacing
    from spanlite.replay.pacing.waiting import Waiter
    from spanlite.replay.prepare import Settings
    from spanlite.replay.selection import Selection

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all of them."""
    parser.add_argument("archive", metavar="ARCHIVE", help="a folder, or s3://bucket/prefix?…")
    parser.add_argument("--to", choices=("file", "stdout", "kafka", "http", "cuda"), required=True, help="where to")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="--to file: SpanBatch messages (spanlite cat)"
    )
    parser.add_argument("--run", default="", metavar="NAME", help="of the run (default: follows from all else)")
    parser.add_argument("--seed", type=int, default=0, help="of remapped ids (default %(default)s)")
    parser.add_argument("--manifest", type=Path, metavar="FILE", help="what was done (--to file: default FILE.json)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be emitted, and emit nothing")
    parser.add_argument("--json", action="store_true", help="print the manifest, or the estimate, on stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no closing line")
    add_selection(parser.add_argument_group("which spans (all conditions; of several values of one, any)"))
    _add_changes(parser.add_argument_group("what is changed"))
    _add_pacing(parser.add_argument_group("when"))
    _add_keeping(parser.add_argument_group("interrupted runs"))
    add_http_arguments(parser.add_argument_group("--to http"))
    add_cuda_arguments(parser.add_argument_group("--to cuda"))
    _add_topic(parser.add_argument_group("--to kafka"))
    add_kafka_arguments(parser)


def add_selection(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--since", metavar="TIME", help="starts from then on, such as 2026-11-29T13:00:00Z")
    group.add_argument("--until", metavar="TIME", help="starts before then")
    group.add_argument("--trace", action="append", metavar="ID", help="trace id, 32 hex digits")
    group.add_argument("--host", action="append", metavar="NAME", help="resource host.name")
    group.add_argument("--gpu", action="append", metavar="UUID")
    group.add_argument("--kernel", action="append", metavar="PATTERN", help="of the kernel's id or full name: '*gemm*'")
    group.add_argument("--stage", action="append", metavar="PATTERN", help="'' for spans outside all stages")
    group.add_argument("--min-duration", metavar="TIME", help="such as 50us")
    group.add_argument("--whole-traces", action="store_true", help="also every span of a trace that has one of these")
    group.add_argument("--sample", metavar="SHARE", help="of all traces, whole ones, on all nodes the same: 10%%")


def _add_changes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--shift",
        default="keep",
        metavar="HOW",
        help="keep, now, offset=+2h, offset=-30m, at=2026-11-29T13:00:00Z: when the first span starts (default keep)",
    )
    group.add_argument(
        "--ids",
        choices=("keep", "remap"),
        default="keep",
        help="remap: other traces, sessions and spans in the same relations (default %(default)s)",
    )
    group.add_argument("--loop", type=int, default=1, metavar="N", help="turns, 0 without end; needs --ids remap")
    group.add_argument("--period", metavar="TIME", help="from turn to turn (default: a turn's length and a mean gap)")
    group.add_argument("--limit-batches", type=int, default=0, metavar="N", help="end after so many, over all turns")
    group.add_argument("--limit-spans", type=int, default=0, metavar="N", help="end before there are more")


def _add_pacing(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--speed", default="max", metavar="X", help="1 as recorded, 0.5, 1..10/60s (default max)")
    group.add_argument(
        "--qps", metavar="N", help="at most so many batches (--to http: requests) a second; delays, never drops"
    )
    group.add_argument(
        "--qps-of",
        choices=("batches", "spans", "traces"),
        default="batches",
        help="what --qps counts (default %(default)s)",
    )
    group.add_argument("--burst", type=int, default=0, metavar="N", help="so many may go at once beyond --qps")
    group.add_argument("--duration", metavar="TIME", help="what is due from then on is left out: 10m")
    group.add_argument(
        "--pace-by",
        choices=("arrival", "start"),
        default="arrival",
        help="order and times: of the agents' sending, or of first starts (default %(default)s)",
    )
    group.add_argument("--mode", default="sleep", help="precise (takes a core), sleep, tick=1ms (default %(default)s)")
    group.add_argument(
        "--realtime", action="store_true", help="before all ordinary threads of the machine (wants CAP_SYS_NICE)"
    )
    group.add_argument("--late", default="catchup", help="catchup, drop=5ms, shift=5ms, abort=1s (default %(default)s)")
    group.add_argument(
        "--prime",
        default="2s",
        metavar="TIME",
        help="wait with the start until reading is ahead, so long at most (default %(default)s)",
    )
    group.add_argument("--gap-cap", metavar="TIME", help="longer pauses between batches are cut to this")


def _add_keeping(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--checkpoint", type=Path, metavar="FILE", help="how far it has come, to go on from")
    group.add_argument("--checkpoint-every", default="1s", metavar="TIME", help="(default %(default)s)")
    group.add_argument("--resume", action="store_true", help="go on from --checkpoint, if it is there")
    group.add_argument("--in-flight", type=int, default=64, metavar="N", help="batches sent and not acknowledged")


def _add_topic(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--topic", help="(default spanlite.replay.RUN)")
    group.add_argument(
        "--yes-live", action="count", default=0, help="given twice: the topic may be one that agents send to"
    )
    group.add_argument("--create-topic", action="store_true", help="make it if it is missing; keeps records for ever")
    group.add_argument(
        "--partitions", type=int, default=PARTITIONS, help="of a topic that is made (default %(default)s)"
    )
    group.add_argument("--replication", type=int, default=1, help="likewise (default %(default)s)")
    group.add_argument(
        "--partition",
        choices=("source", "producer"),
        default="source",
        help="key: host and GPUs as agents send, or the emitted producer (default %(default)s)",
    )


def settings_of(args: argparse.Namespace) -> Settings:
    """What decides which bytes are emitted.

    Raises:
        UsageError: a flag is off.
    """
    from spanlite.replay.prepare import Settings

    if args.run and not _RUN.fullmatch(args.run):
        raise UsageError(f"--run {args.run!r}: write up to 64 letters, digits, - and _")
    return Settings(
        selection=selection_of(args),
        order=args.pace_by,
        ids=args.ids,
        shift=args.shift,
        loops=args.loop,
        seed=args.seed,
        run=args.run,
        period_ns=parse_duration_ns(args.period) if args.period else 0,
        most_batches=args.limit_batches,
        most_spans=args.limit_spans,
    )


def selection_of(args: argparse.Namespace) -> Selection:
    from spanlite.replay.selection import Selection
    from spanlite.replay.shift import parse_time_ns

    plain = Selection()
    return Selection(
        from_ns=parse_time_ns(args.since) if args.since else plain.from_ns,
        to_ns=parse_time_ns(args.until) if args.until else plain.to_ns,
        traces=tuple(_trace(text) for text in _values(args.trace)),
        hosts=_values(args.host),
        gpus=_values(args.gpu),
        kernels=_values(args.kernel),
        stages=_values(args.stage),
        least_ns=parse_duration_ns(args.min_duration) if args.min_duration else 0,
        whole_traces=args.whole_traces,
        share=_share(args.sample) if args.sample else plain.share,
        share_seed=args.seed if args.sample else plain.share_seed,
    )


def _values(given: str | list[str] | None) -> tuple[str, ...]:
    """Values of a flag that may be given again; text where the environment or the settings file gave it."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def _share(text: str) -> float:
    number = text.removesuffix("%")
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?", number):
        raise UsageError(f"--sample {text!r}: write a share of all traces, such as 10% or 0.1")
    return float(number) / (100 if text.endswith("%") else 1)


def _trace(text: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{32}", text):
        raise UsageError(f"--trace {text!r}: a trace id has 32 hex digits")
    return bytes.fromhex(text)


def pacing_of(args: argparse.Namespace, clock: Clock) -> Pacing | None:
    """When items go; None for as fast as it goes.

    Raises:
        UsageError: a flag is off.
    """
    from spanlite.replay.paced import Pacing
    from spanlite.replay.pacing.late import parse_late
    from spanlite.replay.pacing.settings import Limit, Pace, parse_rate, parse_speed

    speed = parse_speed(args.speed)
    if args.burst and not args.qps:
        raise UsageError("--burst goes beyond a limit: give --qps with it")
    limit = Limit(parse_rate(args.qps), args.burst) if args.qps else None
    gap_cap_ns = parse_duration_ns(args.gap_cap) if args.gap_cap else None
    late = parse_late(args.late)
    prime_ns = parse_duration_ns(args.prime)
    waiter = _waiter(args.mode, clock) if speed or limit else None
    if waiter is None:
        return None
    pace = Pace(
        speed=speed,
        limit=limit,
        gap_cap_ns=gap_cap_ns,
        loops=args.loop,
        period_ns=parse_duration_ns(args.period) if args.period else None,
        duration_ns=duration_of(args),
    )
    return Pacing(pace, waiter, late, counts=args.qps_of, realtime=args.realtime, apart=True, prime_ns=prime_ns)


def duration_of(args: argparse.Namespace) -> int | None:
    """Nanoseconds of --duration."""
    return parse_duration_ns(args.duration) if args.duration else None


def _waiter(mode: str, clock: Clock) -> Waiter:
    from spanlite.replay.pacing.waiting import PreciseWaiter, SleepWaiter, TickWaiter

    name, _, value = mode.partition("=")
    if name == "tick":
        return TickWaiter(clock, parse_duration_ns(value)) if value else TickWaiter(clock)
    if mode not in ("precise", "sleep"):
        raise UsageError(f"--mode {mode!r}: write precise, sleep or tick=1ms")
    return PreciseWaiter(clock) if mode == "precise" else SleepWaiter(clock)
