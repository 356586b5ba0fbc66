"""Take spans from the traced processes of this node and send them to Kafka, by way of a bounded spool on disk.

Traced processes never wait for Kafka: what it does not take stays in the spool, over restarts too, until it does or the
spool is full. Every span that is lost is counted by reason on /metrics. SIGTERM or Ctrl-C ends it within 10 seconds;
what is not delivered by then is sent at the next start.

exit codes: 0 ended, 3 ended and spans were dropped, 1 failed, 2 the call is wrong (also: another agent has the socket
or the spool)

examples:
  spanlite agent --socket /run/spanlite/agent.sock --bootstrap kafka:9092 --spool /var/lib/spanlite/spool
  spanlite agent --socket a.sock --spool spool --spool-limit 20GiB --spool-policy newest --fsync always
  spanlite agent --socket a.sock --spool spool --security-file kafka.properties -X linger.ms=5
  spanlite agent --socket a.sock --spool spool --host 0.0.0.0 --metrics-port 9465
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from spanlite.cli.kafka_flags import add_kafka_arguments, kafka_settings
from spanlite.cli.stopping import Stopping
from spanlite.contract import catalogue
from spanlite.transport.topics import SPANS

_PEERS_GRACE_S = 2.0
_SEND_GRACE_S = 5.0


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
    group = parser.add_argument_group("metrics")
    group.add_argument("--host", default="127.0.0.1", help="to listen on (default %(default)s)")
    group.add_argument(
        "--metrics-port", type=int, default=9465, metavar="PORT", help="0 takes a free one (default %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Runs until it is told to end.

    Raises:
        UsageError: a flag is off, or another agent has the socket or the spool.
        ExporterError: the port is taken.
    """
    from spanlite.agent.counts import AgentCounts
    from spanlite.agent.sender import Sender
    from spanlite.agent.server import AgentServer
    from spanlite.agent.spool.gauges import gauges
    from spanlite.agent.spool.settings import Fsync, Policy, SpoolSettings
    from spanlite.agent.spool.spool import Spool
    from spanlite.exporters.server import MetricsServer
    from spanlite.exporters.table import PointTable
    from spanlite.runtime.allocator import bound_arenas
    from spanlite.runtime.clock import SystemClock
    from spanlite.runtime.sizes import parse_size
    from spanlite.transport.kafka import KafkaProducer

    bound_arenas()
    settings = SpoolSettings(parse_size(args.spool_limit), Policy(args.spool_policy), Fsync(args.fsync))
    clock, counts, table = SystemClock(), AgentCounts(), PointTable()
    with Stopping() as stopping, KafkaProducer(kafka_settings(args, client_id="spanlite-agent"), clock=clock) as kafka:
        spool = Spool(args.spool, counts, settings)
        sender = Sender(spool, kafka, clock, counts)
        server = AgentServer(args.socket, sender, clock, counts, topic=args.topic)

        def counters() -> Mapping[str, list[tuple[Mapping[str, str], float]]]:
            return {**counts.counters(), **gauges(spool)}

        table.set_counters(counters)
        with MetricsServer(table, host=args.host, port=args.metrics_port, ready=lambda: True) as metrics:
            server.start()
            sender.start()
            print(f"listening on {args.socket}; metrics: {metrics.url}", file=sys.stderr, flush=True)
            while not stopping.wait(0.5) and sender.failure is None:
                pass
            server.stop(_PEERS_GRACE_S)
            left = sender.stop(_SEND_GRACE_S)
        kafka.close(0)
    if sender.failure is not None:
        raise sender.failure
    dropped = counts.by_label(catalogue.AGENT_SPANS_DROPPED)
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()) if count) or "none"
    sent = counts.value(catalogue.AGENT_SPANS_SENT)
    print(f"{sent} spans delivered, {left} left in the spool; dropped: {why}", file=sys.stderr, flush=True)
    return 3 if sum(dropped.values()) else 0
