"""`spanlite replay run`: joins the archive's files, the replay and the place that it goes to."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from spanlite.cli.replay_cuda_flags import check_cuda
from spanlite.cli.replay_flags import duration_of, pacing_of, settings_of
from spanlite.cli.replay_http_flags import check_http
from spanlite.cli.replay_progress import ProgressLine, estimate, say_estimate
from spanlite.cli.replay_topic import topic_sink
from spanlite.cli.stopping import Stopping
from spanlite.contract.errors import ReplayError, UsageError
from spanlite.pipeline.archive.schema import open_file
from spanlite.pipeline.archive.single import read_columns
from spanlite.pipeline.archive.snapshot import live_files
from spanlite.pipeline.archive.store import open_store
from spanlite.replay.checkpoint import Checkpoint, read_checkpoint, write_json
from spanlite.replay.emission import Keeping
from spanlite.replay.manifest import manifest, pacing_facts
from spanlite.replay.paced import Pacing
from spanlite.replay.ports import Sink, Source
from spanlite.replay.prepare import Replay
from spanlite.replay.running import Outcome, Watch, run_replay
from spanlite.replay.sinks import FileSink, LineSink
from spanlite.runtime.allocator import keep_freed
from spanlite.runtime.clock import Clock, SystemClock
from spanlite.runtime.durations import parse_duration_ns


class ArchiveFiles:
    """The files of an archive whose rows count, as the pipeline reads them."""

    def __init__(self, where: str, sources: Sequence[Source] | None = None) -> None:
        self._given = where
        self._store = open_store(where)
        self.where = self._store.where
        if sources is not None:
            self.sources = sources

    def __reduce__(self) -> tuple[Any, ...]:  # for another process: the same files, whatever has been written since
        return ArchiveFiles, (self._given, self.sources)

    @cached_property
    def sources(self) -> Sequence[Source]:
        return [Source(file.name, file.size) for file in live_files(self._store)]

    def open(self, source: Source) -> Any:
        return open_file(self._store, source.name)

    def read(self, file: Any, group: int, columns: Sequence[str], *, runs: bool = False) -> Any:
        return read_columns(file, group, columns, runs=runs)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """See `spanlite.cli.commands.replay.run`."""
    clock = clock or SystemClock()
    keep_freed()
    _check_flags(args)
    if args.to == "http":
        return _run_http(args, clock)
    if args.to == "cuda":
        from spanlite.cli.replay_cuda import run_cuda

        return run_cuda(args, ArchiveFiles(args.archive), clock)
    settings, pacing = settings_of(args), pacing_of(args, clock)
    resumed = read_checkpoint(args.checkpoint) if args.resume and args.checkpoint.exists() else None
    replay = Replay(
        ArchiveFiles(args.archive),
        settings,
        now_ns=clock.unix_ns(),
        offset=resumed.offset_ns if resumed else None,
        count_traces=args.dry_run or (pacing is not None and pacing.counts == "traces"),
    )
    if args.dry_run:
        facts = estimate(replay, pacing)
        print(json.dumps(facts, indent=2)) if args.json else say_estimate(facts)
        return 0
    said = _said(args, replay)
    if resumed is not None:
        _check_same(args.checkpoint, resumed, said)
        if resumed.complete:
            print(f"{args.checkpoint}: that replay is complete", file=sys.stderr)
            return 0
    return _emit(args, replay, clock, pacing=pacing, resumed=resumed, said=said)


def _run_http(args: argparse.Namespace, clock: Clock) -> int:
    try:
        from spanlite.cli.replay_http import run_http
    except ModuleNotFoundError as error:
        if error.name not in ("httptools", "jinja2"):
            raise
        raise UsageError(f"--to http needs {error.name}: pip install 'spanlite[http]'") from error
    return run_http(args, ArchiveFiles(args.archive), clock)


def _emit(
    args: argparse.Namespace,
    replay: Replay,
    clock: Clock,
    *,
    pacing: Pacing | None,
    resumed: Checkpoint | None,
    said: dict[str, Any],
) -> int:
    keeping = None
    if args.checkpoint:
        every_ns = parse_duration_ns(args.checkpoint_every)
        keeping = Keeping(args.checkpoint, said, replay.offset_ns, every_ns)
    line = ProgressLine(replay, clock, quiet=args.quiet)

    def conclude(outcome: Outcome) -> None:
        _write_manifest(args, replay, pacing, outcome)

    with Stopping() as stopping, _sink(args, replay, clock, paced=pacing is not None) as sink, line:
        outcome = run_replay(
            replay,
            sink,
            clock,
            pacing=pacing,
            duration_ns=duration_of(args),
            keeping=keeping,
            resumed=resumed,
            watch=Watch(stopped=lambda: stopping.told, emitted=line.emitted, paced=line.paced),
            in_flight=args.in_flight,
            concluded=conclude,
        )
    return _close(args, replay, outcome)


def _close(args: argparse.Namespace, replay: Replay, outcome: Outcome) -> int:
    account = outcome.account
    lost = ", ".join(f"{spans} {reason}" for reason, spans in sorted(account.lost.items())) or "none"
    if outcome.ended == "stopped":
        how = f"go on with --checkpoint {args.checkpoint} --resume" if args.checkpoint else "nothing is kept"
        where = f"{args.output}: not written" if args.to == "file" else f"run {replay.run}"
        print(f"{where}; stopped after {account.spans} spans; {how}", file=sys.stderr)
        return 130
    if not args.quiet:
        print(
            f"run {replay.run}: {account.spans} spans in {account.batches} batches, {account.bytes} bytes; "
            f"lost: {lost}; digest {account.digest[:16]}",
            file=sys.stderr,
        )
    return 3 if account.lost else 0


def _check_flags(args: argparse.Namespace) -> None:
    check_http(args)
    check_cuda(args)
    if (args.to == "file") != (args.output is not None):
        raise UsageError("--to file and -o FILE belong together")
    if args.resume and not args.checkpoint:
        raise UsageError("--resume goes on from a checkpoint: name it with --checkpoint FILE")
    if args.json and args.to == "stdout" and not args.dry_run:
        raise UsageError("--json and --to stdout would both write to stdout; take --manifest FILE")
    if args.to != "kafka" and (args.topic or args.yes_live or args.create_topic):
        raise UsageError("--topic, --yes-live and --create-topic belong to --to kafka")
    for flag, value in (("--in-flight", args.in_flight), ("--partitions", args.partitions)):
        if value < 1:
            raise UsageError(f"{flag} must be 1 or more, not {value}")


@contextmanager
def _sink(args: argparse.Namespace, replay: Replay, clock: Clock, *, paced: bool) -> Iterator[Sink]:
    if args.to == "file":
        yield FileSink(args.output, keep=args.checkpoint is not None)
    elif args.to == "stdout":
        yield LineSink(sys.stdout)
    else:
        with topic_sink(args, replay, clock, paced=paced) as sink:
            yield sink


def _said(args: argparse.Namespace, replay: Replay) -> dict[str, Any]:
    """What must be the same for a replay to be gone on with: what decides which bytes go where."""
    place = {"file": str(args.output), "stdout": "-", "kafka": f"{args.bootstrap}/{_topic(args, replay)}"}[args.to]
    return {
        **replay.settings.facts(),
        "run": replay.run,
        "archive": replay.archive.where,
        "plan": replay.plan.digest,
        "to": place,
    }


def _topic(args: argparse.Namespace, replay: Replay) -> str:
    return args.topic or f"spanlite.replay.{replay.run}"


def _check_same(path: Path, resumed: Checkpoint, said: dict[str, Any]) -> None:
    for name, value in said.items():
        if resumed.settings.get(name) != value:
            what = (
                "the archive has other files or rows" if name == "plan" else f"{name} was {resumed.settings.get(name)}"
            )
            raise ReplayError(f"{path}: of another replay: {what}; call it as it was, or start without --resume")


def _write_manifest(args: argparse.Namespace, replay: Replay, pacing: Pacing | None, outcome: Outcome) -> None:
    path = args.manifest or (args.output.with_name(f"{args.output.name}.json") if args.to == "file" else None)
    paced: dict[str, Any] = {"speed": args.speed, "by": args.pace_by}
    if pacing is not None and outcome.summary is not None:
        paced |= {"qps": args.qps, "qps_of": args.qps_of, "mode": pacing.waiter.name, "late_policy": args.late}
        paced |= {"burst": args.burst, "duration": args.duration, "realtime": args.realtime, "gap_cap": args.gap_cap}
        paced |= {"period": args.period, **pacing_facts(outcome.summary)}
    output = {"file": str(args.output), "stdout": "stdout", "kafka": _topic(args, replay)}[args.to]
    facts = manifest(replay, outcome.account, ended=outcome.ended, version=_version(), output=output, pacing=paced)
    if path is not None:
        write_json(path, facts)
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))


def _version() -> str:
    try:
        return version("spanlite")
    except PackageNotFoundError:
        return "0+unknown"
