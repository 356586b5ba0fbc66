"""Serve the metric points of a Kafka topic to Prometheus.

It reads the topic from its beginning and answers 503 until it has all that was there when it started; so a restart
loses nothing, and any number of exporters may serve the same topic. SIGTERM or Ctrl-C ends it.

examples:
  spanlite exporter --bootstrap kafka:9092
  spanlite exporter --bootstrap kafka:9093 --security-file kafka.properties --host 0.0.0.0 --expire 6h
"""

from __future__ import annotations

import argparse
import sys

from spanlite.cli.kafka_flags import add_kafka_arguments, kafka_settings
from spanlite.cli.stopping import Stopping
from spanlite.contract.errors import UsageError
from spanlite.exporters.server import MetricsServer
from spanlite.exporters.table import PointTable
from spanlite.exporters.view import PointView
from spanlite.runtime.durations import parse_duration_ns
from spanlite.transport.kafka import KafkaConsumer
from spanlite.transport.topics import POINTS

_LOOK_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `spanlite exporter`."""
    add_kafka_arguments(parser)
    parser.add_argument("--topic", default=POINTS.name, help="of cumulative points (default %(default)s)")
    parser.add_argument("--host", default="127.0.0.1", help="to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=9464, help="of /metrics; 0 takes a free one (default %(default)s)")
    parser.add_argument(
        "--expire",
        default="24h",
        metavar="DURATION",
        help="a series not heard of for so long, by the time of the spans, is no longer shown (default %(default)s)",
    )
    parser.add_argument(
        "--series-cap",
        type=int,
        default=2000,
        metavar="N",
        help="label sets of a family with a series of their own; later ones add to `other` (default %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Serves until it is told to end: 0.

    Raises:
        UsageError: a flag is off, or librdkafka refuses the settings.
        ExporterError: the port is taken.
        TransportError: the topic is missing, or the broker refuses the login.
    """
    if args.series_cap < 1:
        raise UsageError(f"--series-cap must be 1 or more, not {args.series_cap}")
    table = PointTable(series_cap=args.series_cap, expire_ns=parse_duration_ns(args.expire))
    settings = kafka_settings(args, client_id="spanlite-exporter")
    with KafkaConsumer(settings, args.topic) as consumer:
        view = PointView(consumer, table, caught_up=lambda: consumer.caught_up)
        table.set_counters(view.counters)
        with (
            Stopping() as stopping,
            MetricsServer(table, host=args.host, port=args.port, ready=view.is_ready) as server,
        ):
            print(f"metrics: {server.url}", file=sys.stderr, flush=True)
            view.start()
            try:
                while not (stopping.told or view.wait(_LOOK_S)):
                    pass
            finally:
                view.stop()
    return 0
