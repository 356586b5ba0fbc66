"""`spanlite replay compare`: joins the archive, what came of its replay, and the places that the report goes to."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanlite.cli.kafka_flags import kafka_settings
from spanlite.cli.output import whole_file
from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.errors import TransportError, UsageError
from spanlite.pipeline.archive.read import read_batches
from spanlite.pipeline.archive.store import open_store
from spanlite.replay.compare.comparing import Replayed, compare
from spanlite.replay.compare.figures import Report
from spanlite.replay.compare.formats import measure_formats
from spanlite.replay.compare.gates import Gate, parse_gate
from spanlite.replay.compare.report_html import page
from spanlite.replay.compare.report_text import lines
from spanlite.replay.compare.sources import came_in_archive, came_in_file, came_in_topic, producers_of
from spanlite.replay.compare.told import read_manifest
from spanlite.runtime.clock import Clock, SystemClock

_TOPIC = "kafka:"


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """See `spanlite.cli.commands.replay.run`."""
    clock = clock or SystemClock()
    gates = _gates(args.require)
    told = read_manifest(_manifest(args))
    store = open_store(args.original)
    files = ArchiveFiles(args.original)
    producers = producers_of(files) if told.loops > 1 else ()
    with _replayed(args, clock) as replayed:
        report = compare(told, lambda: read_batches(store), replayed, where=store.where, producers=producers)
    if args.formats:
        report.formats = measure_formats(read_batches(store))
    report.gates = [gate.judged(report) for gate in gates]
    _write(args, report)
    return 0 if all(gate["passed"] for gate in report.gates) else 1


def _gates(given: str | list[str] | None) -> list[Gate]:
    """Requirements; text with commas where the environment or the settings file gave them."""
    texts = given.split(",") if isinstance(given, str) else given or []
    return [parse_gate(text) for text in texts]


def _manifest(args: argparse.Namespace) -> Path:
    if args.manifest:
        path: Path = args.manifest
        return path
    if _kind(args.replay) != "file":
        raise UsageError(f"{args.replay}: name the manifest of its run with --manifest FILE")
    return Path(f"{args.replay}.json")


def _kind(replay: str) -> str:
    if replay.startswith(_TOPIC):
        return "topic"
    return "archive" if "://" in replay or Path(replay).is_dir() else "file"


@contextmanager
def _replayed(args: argparse.Namespace, clock: Clock) -> Iterator[Replayed]:
    kind = _kind(args.replay)
    if kind == "file":
        yield Replayed(args.replay, kind, came_in_file(Path(args.replay)))
    elif kind == "archive":
        store = open_store(args.replay)
        yield Replayed(store.where, kind, came_in_archive(read_batches(store)))
    else:
        with _topic(args, clock) as replayed:
            yield replayed


@contextmanager
def _topic(args: argparse.Namespace, clock: Clock) -> Iterator[Replayed]:
    from spanlite.transport.kafka_admin import KafkaAdmin
    from spanlite.transport.kafka_consumer import KafkaConsumer

    name = args.replay.removeprefix(_TOPIC)
    settings = kafka_settings(args, client_id="spanlite-compare")
    found = KafkaAdmin(settings, clock=clock).found([name]).get(name)
    if found is None:
        raise TransportError(f"{name} at {settings.bootstrap}: no such topic; name the one that the run went to")
    stored_times = found.config.get("message.timestamp.type") == "LogAppendTime"
    with KafkaConsumer(settings, name, clock=clock) as reader:
        yield Replayed(args.replay, "topic", came_in_topic(reader, clock, stored_times=stored_times))


def _write(args: argparse.Namespace, report: Report) -> None:
    as_json = args.json_file is not None and str(args.json_file) == "-"
    if args.html:
        with whole_file(args.html) as stream:
            stream.write(page(report))
    if args.json_file:
        with whole_file(args.json_file) as stream:
            json.dump(report.facts(), stream, indent=2, ensure_ascii=False)
            stream.write("\n")
    if not as_json and str(args.html) != "-":
        print("\n".join(lines(report)))
