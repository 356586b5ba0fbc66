"""Points from wherever `spanlite backtest` takes them: a file, a topic, or an archive that is put through first."""

from __future__ import annotations

import argparse
from pathlib import Path

from spanlite.cli.backtest_run import backtest_archive, policy_of, top_k_of
from spanlite.cli.kafka_flags import kafka_settings
from spanlite.cli.output import progress_bar
from spanlite.contract.errors import PointError, TransportError, UsageError
from spanlite.contract.point_codec import decode_point
from spanlite.contract.points import Point, Series
from spanlite.pipeline.backtest.files import read_points
from spanlite.pipeline.pointset import PointSet, point_set

TOPIC = "kafka:"
"""What the name of a topic stands behind."""
_POLL = 2000
_POLL_S = 0.2
_SILENCE_S = 30.0


def is_archive(where: str) -> bool:
    """Whether it is a folder or a URI rather than a file or a topic."""
    return not where.startswith(TOPIC) and ("://" in where or Path(where).is_dir())


def load(args: argparse.Namespace, where: str) -> PointSet:
    """The points of an archive, in windows of --window; of a file, folded into windows of --window if it is given; of
    `kafka:TOPIC`.

    Raises:
        SpanliteError: what is wrong with it.
    """
    if is_archive(where):
        bar = progress_bar(Path(where).name, quiet=args.quiet)
        return backtest_archive(where, policy_of(args), top_k=top_k_of(args), progress=bar)[0]
    if where.startswith(TOPIC):
        return read_topic(args, where.removeprefix(TOPIC))
    found = read_points(Path(where))
    return widened(found, args.window) if args.window else found


def widened(found: PointSet, window: str) -> PointSet:
    """Points of windows of another width."""
    return found.coarser(policy_of(argparse.Namespace(window=window)).width_ns)


def read_topic(args: argparse.Namespace, topic: str) -> PointSet:
    """All points of a topic: of cumulative ones the newest of each series, in its newest epoch.

    Raises:
        UsageError: there is none, a record is none, or they do not go together.
        TransportError: no topic, no broker, no right; or the topic's end is not reached.
    """
    from spanlite.transport.kafka_consumer import KafkaConsumer

    newest: dict[Series, Point] = {}
    windows: list[Point] = []
    settings = kafka_settings(args, client_id="spanlite-backtest")
    silent_s = 0.0
    with KafkaConsumer(settings, topic) as consumer:
        while not consumer.caught_up:
            records = consumer.poll(_POLL, _POLL_S)
            silent_s = 0.0 if records else silent_s + _POLL_S
            if silent_s > _SILENCE_S:
                raise TransportError(
                    f"{topic}: nothing comes for {_SILENCE_S:g} s; {consumer.last_error or 'try again'}"
                )
            for record in records:
                if not record.value:
                    continue
                try:
                    point = decode_point(record.value)
                except PointError as error:
                    raise UsageError(f"{topic} offset {record.offset} is no point: {error}") from error
                if not point.cumulative:
                    windows.append(point)
                elif _is_newer(point, newest.get(point.series)):
                    newest[point.series] = point
    found = [*newest.values(), *windows]
    if not found:
        raise UsageError(f"{topic}: no point in it; wait until the job has told some")
    return point_set(found)


def _is_newer(point: Point, held: Point | None) -> bool:
    """Later state, or no less in the same one: within an epoch the last point counts the most."""
    return held is None or (point.epoch, point.count) >= (held.epoch, held.count)
