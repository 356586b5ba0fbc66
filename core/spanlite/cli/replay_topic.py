"""A Kafka topic for a replay to go to: never that of the agents by mistake, never one that is not there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spanlite.cli.kafka_flags import kafka_settings
from spanlite.contract.errors import TransportError, UsageError
from spanlite.replay.prepare import Replay
from spanlite.replay.sinks import TopicSink
from spanlite.runtime.clock import Clock
from spanlite.transport.topics import SPANS, Found, Topic

PREFIX = "spanlite.replay."


@contextmanager
def topic_sink(args: argparse.Namespace, replay: Replay, clock: Clock, *, paced: bool) -> Iterator[TopicSink]:
    """The sink, whose producer is closed with the context.

    Raises:
        UsageError: it is a topic that agents send to, and nobody said yes twice.
        TransportError: there is no such topic, or no broker answers.
    """
    from spanlite.transport.kafka_admin import KafkaAdmin
    from spanlite.transport.kafka_producer import KafkaProducer

    name: str = args.topic or f"{PREFIX}{replay.run}"
    _check_not_live(name, args.yes_live)
    settings = kafka_settings(args, client_id="spanlite-replay")
    admin = KafkaAdmin(settings)
    found = admin.found([name]).get(name)
    if found is None and args.create_topic:
        # The broker's own times: old ones would make it forget, when it restarts, what it has had from this producer,
        # and say nothing of when a record came (`replay compare` wants to know).
        config = {**SPANS.config, "retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
        config["min.insync.replicas"] = "2" if args.replication >= 3 else "1"
        admin.create(Topic(name, "a replay", args.partitions, config, replication=args.replication))
    elif found is None:
        raise TransportError(f"{name} at {settings.bootstrap}: no such topic; make it, or pass --create-topic")
    else:
        _warn_of_retention(found, replay, clock)
    if paced:  # waiting for company, by the client or by TCP, would be more than the pacer is late
        settings = settings.with_defaults({"linger.ms": "0", "socket.nagle.disable": "true"})
    with KafkaProducer(settings, clock=clock) as producer:
        yield TopicSink(producer, name, by=args.partition)


def _check_not_live(name: str, said_yes: int) -> None:
    live = name == SPANS.name or (name.rpartition(".")[2] == "spans" and not name.startswith(PREFIX))
    if live and said_yes < 2:
        raise UsageError(
            f"{name} is a topic that agents send to, and its readers would take replayed spans for live ones; choose "
            "another --topic, or give --yes-live twice"
        )


def _warn_of_retention(found: Found, replay: Replay, clock: Clock) -> None:
    kept_ms = int(found.config.get("retention.ms", "-1"))
    first_ns = int(replay.plan.end_ns.min()) + replay.offset_ns
    if 0 <= kept_ms < (clock.unix_ns() - first_ns) // 1_000_000:
        print(
            f"spanlite: {found.name} keeps records for {kept_ms / 3_600_000:g} h by their own times, and Kafka will "
            "delete older ones soon; take --shift now, or retention.ms=-1",
            file=sys.stderr,
        )
