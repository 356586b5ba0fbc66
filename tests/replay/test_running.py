"""Runs to a file: whole or not at all, the same bytes for the same seed, gone on with after any end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.batch import Batch
from spanlite.contract.errors import ReplayError, SpanliteError, UsageError
from spanlite.replay.checkpoint import Account, Checkpoint, read_checkpoint, write_checkpoint
from spanlite.replay.emission import Keeping
from spanlite.replay.paced import Pacing, Planned, planned
from spanlite.replay.pacing.late import LatePolicy
from spanlite.replay.pacing.settings import Limit, Pace, parse_rate, parse_speed
from spanlite.replay.pacing.waiting import SleepWaiter
from spanlite.replay.ports import Position
from spanlite.replay.prepare import Replay, Settings
from spanlite.replay.running import Outcome, Watch, run_replay
from spanlite.replay.sinks import FileSink
from spanlite.runtime.clock import ManualClock
from tests.replay.archives import edges, lines, read_file


def plan(root: Path, **settings: object) -> Replay:
    """A replay of an archive."""
    traces = bool(settings.pop("count_traces", False))
    return Replay(
        ArchiveFiles(str(root)),
        Settings(**settings),  # type: ignore[arg-type]  # as given
        now_ns=0,
        count_traces=traces,
    )


def to_file(replay: Replay, path: Path, **how: object) -> Outcome:
    """Runs a replay to a file."""
    return run_replay(replay, FileSink(path, keep="keeping" in how), ManualClock(), **how)  # type: ignore[arg-type]


def test_a_file_holds_every_span(archive: Path, recorded: list[Batch], tmp_path: Path) -> None:
    """The multiset of all spans, columns and ids included, equals what was recorded."""
    outcome = to_file(plan(archive), tmp_path / "again.spans")
    got = read_file(tmp_path / "again.spans")
    assert lines(got) == lines(recorded)
    assert outcome.account.spans == lines(recorded).total()
    assert [path.name for path in tmp_path.iterdir()] == ["again.spans"]


@pytest.mark.parametrize("ids", ["keep", "remap"])
def test_the_same_seed_gives_the_same_bytes(archive: Path, tmp_path: Path, ids: str) -> None:
    """Two runs with one seed write equal files; mapped with another seed, every id is another."""
    outcomes = [to_file(plan(archive, ids=ids, seed=seed), tmp_path / f"{at}") for at, seed in enumerate((7, 7, 8))]
    first, again, other = ((tmp_path / f"{at}").read_bytes() for at in range(3))
    assert first == again
    assert outcomes[0].account == outcomes[1].account
    if ids == "remap":
        ours, theirs = ({span for span, *_ in edges(read_file(tmp_path / name))} for name in ("0", "2"))
        assert not ours & theirs
    assert first != other


def test_a_pace_changes_no_byte(small_archive: Path, tmp_path: Path) -> None:
    """Paced by recorded times on a clock that moves by itself, the file is that of a run at full speed."""
    fast = to_file(plan(small_archive), tmp_path / "fast")
    clock = ManualClock()
    replay = plan(small_archive)
    pacing = Pacing(Pace(speed=parse_speed("2")), SleepWaiter(clock), LatePolicy())
    paced = run_replay(replay, FileSink(tmp_path / "paced", keep=False), clock, pacing=pacing)
    assert (tmp_path / "fast").read_bytes() == (tmp_path / "paced").read_bytes()
    assert paced.account == fast.account
    assert paced.summary is not None
    assert paced.summary.sent == len(replay.plan)
    recorded_ns = int(replay.plan.arrival_ns.max() - replay.plan.arrival_ns.min())
    assert planned(replay, pacing) == Planned(-(-recorded_ns // 2), len(replay.plan), replay.spans)
    assert recorded_ns // 2 <= clock.monotonic_ns() <= recorded_ns // 2 + 20_000_000


def test_a_limit_delays_and_drops_nothing(small_archive: Path, tmp_path: Path) -> None:
    """At 100 batches a second n of them take (n - 1) / 100 s, and all arrive."""
    clock, replay = ManualClock(), plan(small_archive, ids="remap", loops=2)
    pacing = Pacing(Pace(speed=None, limit=Limit(parse_rate("100")), loops=2), SleepWaiter(clock), LatePolicy())
    outcome = run_replay(replay, FileSink(tmp_path / "out", keep=False), clock, pacing=pacing)
    assert outcome.account.batches == 2 * len(replay.plan)
    batches = 2 * len(replay.plan)
    assert planned(replay, pacing) == Planned((batches - 1) * 10_000_000, batches, 2 * replay.spans)


@pytest.mark.parametrize("ids", ["keep", "remap"])
@pytest.mark.parametrize("paced", [False, True])
def test_stopped_at_any_item_and_gone_on_with(small_archive: Path, tmp_path: Path, ids: str, *, paced: bool) -> None:
    """Stopped again and again, the file in the end is that of a run that was not, without a span twice."""
    loops = 2 if ids == "remap" else 1
    whole = to_file(plan(small_archive, ids=ids, loops=loops), tmp_path / "whole")
    path, kept, clock = tmp_path / "pieces", tmp_path / "kept.json", ManualClock()
    resumed: Checkpoint | None = None
    pieces = 0
    while resumed is None or not resumed.complete:
        replay, seen = plan(small_archive, ids=ids, loops=loops), 0

        def stopped() -> bool:
            nonlocal seen
            seen += 1
            return seen > 12

        pacing = Pacing(Pace(loops=loops), SleepWaiter(clock), LatePolicy()) if paced else None
        outcome = run_replay(
            replay,
            FileSink(path, keep=True),
            clock,
            pacing=pacing,
            keeping=Keeping(kept, {}, replay.offset_ns, every_ns=1),
            resumed=resumed,
            watch=Watch(stopped=stopped),
        )
        resumed = read_checkpoint(kept)
        assert resumed.account == outcome.account
        assert path.exists() == (outcome.ended == "finished") == resumed.complete
        pieces += 1
    assert pieces > 2
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()
    assert resumed.account == whole.account


def test_a_stop_without_a_checkpoint_leaves_nothing(small_archive: Path, tmp_path: Path) -> None:
    """What cannot be gone on with is not left lying about, and the old file stays as it was."""
    path = tmp_path / "out"
    path.write_bytes(b"old")
    outcome = to_file(plan(small_archive), path, watch=Watch(stopped=lambda: True))
    assert outcome.ended == "stopped"
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


def test_an_end_between_the_last_two_steps_is_gone_on_with(small_archive: Path, tmp_path: Path) -> None:
    """Killed when the file had its name but the checkpoint did not say so, the next run only finishes."""
    path, kept = tmp_path / "out", tmp_path / "kept.json"
    replay = plan(small_archive)

    def fail(_: Outcome) -> None:
        raise ReplayError("the manifest cannot be written")

    keeping = Keeping(kept, {}, 0)
    with pytest.raises(ReplayError, match="manifest"):
        run_replay(replay, FileSink(path, keep=True), ManualClock(), keeping=keeping, concluded=fail)
    data, checkpoint = path.read_bytes(), read_checkpoint(kept)
    assert not checkpoint.complete
    outcome = run_replay(replay, FileSink(path, keep=True), ManualClock(), keeping=keeping, resumed=checkpoint)
    assert outcome.account == checkpoint.account
    assert read_checkpoint(kept).complete
    assert path.read_bytes() == data


def test_two_runs_do_not_write_one_file(small_archive: Path, tmp_path: Path) -> None:
    """A second replay to the same file is refused while the first one writes it."""
    first, second = FileSink(tmp_path / "out", keep=False), FileSink(tmp_path / "out", keep=False)
    first.begin()
    with pytest.raises(UsageError, match="another replay"):
        second.begin()
    first.close(complete=False)
    second.begin()
    second.close(complete=False)


def test_what_a_checkpoint_tells_of_must_be_there(tmp_path: Path) -> None:
    """A file that is shorter than the checkpoint says, or gone, is not gone on with."""
    sink = FileSink(tmp_path / "out", keep=True)
    with pytest.raises(ReplayError, match="start without --resume"):
        sink.resume({"bytes": 5})
    (tmp_path / ".out.replay").write_bytes(b"1234")
    with pytest.raises(ReplayError, match="start without --resume"):
        sink.resume({"bytes": 5})


def test_checkpoints_come_back(tmp_path: Path) -> None:
    """Everything that is written is read again; what is none, or of another version, is refused."""
    path = tmp_path / "kept.json"
    account = Account(Position(1, 2, 3), 4, 5, 6, {"late": 7}, -8, 9, "ab" * 32, {"00": 1})
    checkpoint = Checkpoint({"a": [1]}, -5, account, {"bytes": 3}, complete=True)
    write_checkpoint(path, checkpoint)
    assert read_checkpoint(path) == checkpoint
    facts = json.loads(path.read_text())
    for wrong in ("{", "[]", "{}", json.dumps({**facts, "format": 2}), json.dumps({**facts, "account": {}, "x": 1})):
        path.write_text(wrong)
        with pytest.raises(SpanliteError, match=r"kept\.json"):
            read_checkpoint(path)
    with pytest.raises(UsageError, match="no checkpoint"):
        read_checkpoint(tmp_path / "none")


def test_what_was_written_after_the_last_checkpoint_is_written_again(small_archive: Path, tmp_path: Path) -> None:
    """A kill leaves more bytes than the checkpoint tells of: the next one tells of those that are there then."""
    items = list(plan(small_archive).ready())
    path = tmp_path / "out"
    killed = FileSink(path, keep=True)
    killed.begin()
    for ready in items[:2]:
        killed.send(ready.item, ready.payload, lambda _: None)
    kept = killed.sync()
    for ready in items[2:5]:
        killed.send(ready.item, ready.payload, lambda _: None)
    killed.sync()
    killed.close(complete=False)
    again = FileSink(path, keep=True)
    again.resume(kept)
    again.send(items[2].item, items[2].payload, lambda _: None)
    assert again.sync() == {"bytes": (tmp_path / ".out.replay").stat().st_size}
    again.close(complete=True)
    assert len(read_file(path)) == 3


@pytest.mark.parametrize("apart", [False, True])
def test_nothing_is_left_to_pace_after_the_last_turn(small_archive: Path, tmp_path: Path, *, apart: bool) -> None:
    """Killed when all was emitted and before its checkpoint said so: the run that goes on adds no turn."""
    whole = to_file(plan(small_archive, ids="remap", loops=2), tmp_path / "out")
    size = (tmp_path / "out").stat().st_size
    clock, replay = ManualClock(), plan(small_archive, ids="remap", loops=2)
    kept = Checkpoint({}, replay.offset_ns, whole.account, {"bytes": size})
    pacing = Pacing(Pace(loops=2), SleepWaiter(clock), LatePolicy(), apart=apart)
    outcome = run_replay(replay, FileSink(tmp_path / "out", keep=True), clock, pacing=pacing, resumed=kept)
    assert outcome.account == whole.account
    assert (tmp_path / "out").stat().st_size == size
