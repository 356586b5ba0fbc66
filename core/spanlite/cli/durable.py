"""`spanlite pipeline run`: the jobs in this process, over Kafka."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spanlite.cli.kafka_flags import kafka_settings
from spanlite.cli.stopping import Stopping
from spanlite.contract.errors import UsageError
from spanlite.pipeline.archive.flush import writer
from spanlite.pipeline.durable import Cadence, DurablePipeline, Topics, run_until
from spanlite.pipeline.kept import KeptState
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.clock import SystemClock
from spanlite.runtime.durations import parse_duration_ns
from spanlite.transport.kafka import KafkaConsumer, KafkaProducer
from spanlite.transport.topics import topic_names

if TYPE_CHECKING:
    from spanlite.exporters.table import Counters

# A dead letter is a message as it came, and other tools may have sent larger ones than spanlite's producers do.
_LARGEST = {"message.max.bytes": str(4 << 20)}


def run(args: argparse.Namespace) -> int:
    """Until SIGTERM or Ctrl-C, or with --bounded to the end of what is in the topic: 0.

    Raises:
        SpanliteError: started again, it goes on from its last commit.
    """
    if args.state is None:
        raise UsageError("--state FILE is missing: where the runner keeps its totals and offsets over restarts")
    clock, names = SystemClock(), topic_names(args.prefix)
    topics = Topics(names["spans"], names["points"], names["late"], names["dead"])
    policy = WindowPolicy(
        width_ns=parse_duration_ns(args.window),
        lateness_ns=parse_duration_ns(args.lateness),
        idle_ns=parse_duration_ns(args.idle),
    )
    cadence = Cadence(emit=parse_duration_ns(args.emit), archive=parse_duration_ns(args.flush))
    settings = kafka_settings(args, client_id="spanlite-pipeline")
    write = writer(args.archive, buckets=args.buckets) if args.archive else None
    args.state.parent.mkdir(parents=True, exist_ok=True)
    state = KeptState(args.state)
    try:
        with (
            Stopping() as stopping,
            KafkaConsumer(settings, topics.spans, offsets=state.positions(topics.spans)) as consumer,
            KafkaProducer(settings.with_defaults(_LARGEST)) as producer,
        ):
            pipeline = DurablePipeline(
                state,
                consumer,
                producer,
                topics,
                policy=policy,
                clock=clock,
                top_k=args.top_k,
                write=write,
                cadence=cadence,
            )
            with _metrics(pipeline.counters, args.metrics_port) as where:
                print(f"reading {topics.spans} at {settings.bootstrap}{where}", file=sys.stderr, flush=True)
                run_until(pipeline, lambda: stopping.told or (args.bounded and consumer.caught_up))
                pipeline.finish(close_windows=args.bounded and not stopping.told)
    finally:
        state.close()
    return 0


@contextmanager
def _metrics(counters: Callable[[], Counters], port: int) -> Iterator[str]:
    """Serves them, unless the port is 0; where, as the rest of a line.

    Raises:
        ExporterError: the port is taken.
    """
    if not port:
        yield ""
        return
    from spanlite.exporters.server import MetricsServer
    from spanlite.exporters.table import PointTable

    table = PointTable()
    table.set_counters(counters)
    with MetricsServer(table, port=port, ready=lambda: True) as server:
        yield f"; metrics: {server.url}"
