"""Take spans from the traced processes of this node and send them to Kafka, by way of a bounded spool on disk.

Traced processes never wait for Kafka: what it does not take stays in the spool, over restarts too, until it does or the
spool is full. Every span that is lost is counted by reason on /metrics. Who a process is, container, pod, Slurm job,
comes from the kernel, the kubelet and the driver, as far as they are there. SIGTERM or Ctrl-C ends it within 10
seconds; what is not delivered by then is sent at the next start.

exit codes: 0 ended, 3 ended and spans were dropped, 1 failed, 2 the call is wrong (also: another agent has the socket
or the spool)

examples:
  spanlite agent --socket /run/spanlite/agent.sock --bootstrap kafka:9092 --spool /var/lib/spanlite/spool
  spanlite agent --socket a.sock --spool spool --spool-limit 20GiB --spool-policy newest --fsync always
  spanlite agent --socket a.sock --spool spool --security-file kafka.properties -X linger.ms=5
  spanlite agent --socket a.sock --spool spool --host 0.0.0.0 --metrics-port 9465
  spanlite agent --socket a.sock --spool spool --socket-group spanlite --peer-bytes 64MiB --peer-spans 1000000
  spanlite agent --socket a.sock --spool spool --otlp-endpoint http://localhost:4318
  spanlite agent --socket a.sock --spool spool --counters --counters-hz 2000
  spanlite agent --socket a.sock --spool spool --sample-traces 100
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from spanlite.cli.agent_flags import (
    add_node_arguments,
    endpoint_of,
    identifier_of,
    quotas_of,
    sampler_of,
    telemetry_to,
)
from spanlite.cli.counter_flags import add_counter_arguments, counters_of
from spanlite.cli.kafka_flags import add_kafka_arguments, kafka_settings
from spanlite.cli.stopping import Stopping
from spanlite.contract import catalogue
from spanlite.transport.topics import SPANS

if TYPE_CHECKING:
    from spanlite.agent.counts import AgentCounts
    from spanlite.agent.health import Health
    from spanlite.agent.sender import Sender
    from spanlite.agent.tracing import Tracing

_PEERS_GRACE_S = 2.0
_SEND_GRACE_S = 5.0
_LOOK_S = 0.5
_WAITING = "spanlite.spool.records"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument(
        "--socket", type=Path, required=True, metavar="PATH", help="unix socket that traced processes write to"
    )
    add_kafka_arguments(parser)
    parser.add_argument("--topic", default=SPANS.name, help="of span batches (default %(default)s)")
    group = parser.add_argument_group("spool")
    group.add_argument("--spool", type=Path, required=True, metavar="DIR", help="folder of this agent alone")
    group.add_argument(
        "--spool-limit", default="1GiB", metavar="SIZE", help="bytes on disk, such as 512MiB (default %(default)s)"
    )
    group.add_argument(
        "--spool-policy",
        choices=("oldest", "newest"),
        default="oldest",
        help="what is dropped when it is full (default %(default)s)",
    )
    group.add_argument(
        "--fsync",
        choices=("interval", "always", "never"),
        default="interval",
        help="a loss of power costs up to 0.2 s, nothing, or what the kernel held; a killed agent costs nothing "
        "(default %(default)s)",
    )
    add_node_arguments(parser)
    add_counter_arguments(parser)
    group = parser.add_argument_group("metrics and health")
    group.add_argument("--host", default="127.0.0.1", help="to listen on (default %(default)s)")
    group.add_argument(
        "--metrics-port", type=int, default=9465, metavar="PORT", help="0 takes a free one (default %(default)s)"
    )
    group.add_argument(
        "--stall-limit",
        default="60s",
        metavar="TIME",
        help="/readyz says no once batches wait and none was delivered for so long (default %(default)s)",
    )
    group.add_argument(
        "--otlp-endpoint",
        metavar="URL",
        help="export metrics and rare spans there as well, such as http://localhost:4318 "
        "(default OTEL_EXPORTER_OTLP_ENDPOINT; off without)",
    )


def run(args: argparse.Namespace) -> int:
    """Runs until it is told to end.

    Raises:
        UsageError: a flag is off, or another agent has the socket or the spool.
        ExporterError: the port is taken.
    """
    from spanlite.agent.access import Access
    from spanlite.agent.counts import AgentCounts
    from spanlite.agent.health import Health
    from spanlite.agent.lock import NodeLock
    from spanlite.agent.sender import Sender
    from spanlite.agent.server import AgentServer
    from spanlite.agent.spool.gauges import gauges
    from spanlite.agent.spool.settings import Fsync, Policy, SpoolSettings
    from spanlite.agent.spool.spool import Spool
    from spanlite.exporters.server import MetricsServer
    from spanlite.exporters.table import PointTable
    from spanlite.runtime.allocator import bound_arenas
    from spanlite.runtime.clock import SystemClock
    from spanlite.runtime.durations import parse_duration_ns
    from spanlite.runtime.sizes import parse_size
    from spanlite.transport.kafka import KafkaProducer

    bound_arenas()
    settings = SpoolSettings(parse_size(args.spool_limit), Policy(args.spool_policy), Fsync(args.fsync))
    quotas, sampler, access = quotas_of(args), sampler_of(args), Access.of_group(args.socket_group)
    stall_s = parse_duration_ns(args.stall_limit) / 1e9
    endpoint, hardware_of = endpoint_of(args), counters_of(args)
    clock, counts, table = SystemClock(), AgentCounts(), PointTable()
    identifier = identifier_of(args, clock, counts)
    with ExitStack() as parts:
        stopping = parts.enter_context(Stopping())
        parts.enter_context(NodeLock(args.socket))
        kafka = parts.enter_context(KafkaProducer(kafka_settings(args, client_id="spanlite-agent"), clock=clock))
        spool = Spool(args.spool, counts, settings)
        sender = Sender(spool, kafka, clock, counts)
        hardware = hardware_of(sender, clock, counts)

        def counters() -> Mapping[str, Iterable[tuple[Mapping[str, str], float]]]:
            return {
                **counts.counters(),
                **gauges(spool),
                **server.gauges(),
                **(identifier.gauges() if identifier else {}),
                **hardware.gauges(),
            }

        telemetry = parts.enter_context(telemetry_to(endpoint, counters))
        server = AgentServer(
            args.socket,
            sender,
            clock,
            counts,
            topic=args.topic,
            quotas=quotas,
            identifier=identifier,
            access=access,
            tracing=telemetry,
            look=hardware.look,
            sampler=sampler,
        )
        health = Health(server, sender, clock, counts, stall_s=stall_s)
        table.set_counters(counters)
        with MetricsServer(
            table, host=args.host, port=args.metrics_port, ready=lambda: True, checks=health.problems
        ) as metrics:
            with telemetry.span("start", {_WAITING: spool.state().records}):
                server.start()
                sender.start()
                hardware.start()
            print(f"listening on {args.socket}; metrics: {metrics.url}", file=sys.stderr, flush=True)
            _until_told(stopping, sender, health, telemetry)
            server.stop(_PEERS_GRACE_S)
            hardware.stop()
            left = sender.stop(_SEND_GRACE_S)
        kafka.close(0)
    if sender.failure is not None:
        raise sender.failure
    return _farewell(counts, left)


def _until_told(stopping: Stopping, sender: Sender, health: Health, telemetry: Tracing) -> None:
    """Waits for a signal or a fault; what an earlier run left behind is a span until all of it has been handled."""
    with ExitStack() as replay:
        recovered = sender.spool.state().records
        if recovered:
            replay.enter_context(telemetry.span("spool replay", {_WAITING: recovered}))
        while not stopping.wait(_LOOK_S) and sender.failure is None:
            health.look()
            if sender.counts.value(catalogue.AGENT_BATCHES_SENT) >= recovered:
                replay.close()


def _farewell(counts: AgentCounts, left: int) -> int:
    """The last line, and the exit code."""
    dropped = counts.by_label(catalogue.AGENT_SPANS_DROPPED)
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()) if count) or "none"
    sent = counts.value(catalogue.AGENT_SPANS_SENT)
    sampled_out = counts.value(catalogue.AGENT_SPANS_SAMPLED_OUT)
    told = f", {sampled_out} of traces that are not sampled" if sampled_out else ""
    print(f"{sent} spans delivered, {left} left in the spool{told}; dropped: {why}", file=sys.stderr, flush=True)
    return 3 if sum(dropped.values()) else 0
