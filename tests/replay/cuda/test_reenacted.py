"""Archives re-enacted on an imitated GPU: what it ran is what was recorded, and the account adds up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.batch import Batch
from spanlite.replay.cuda.launches import Launches, make_launches
from spanlite.replay.cuda.ptx import entry_name
from spanlite.replay.cuda.run import Enacted, Watch, enact
from spanlite.replay.cuda.timeline import Rows, Timeline
from spanlite.replay.pacing.settings import Pace, parse_speed
from spanlite.replay.selection import Selection
from tests.replay.archives import write_archive
from tests.replay.cuda.imitated import CLOCK, RECORD, Gpu, until

SPEED = parse_speed("0.5")  # the machine that imitates is no GPU
Log = np.ndarray[tuple[int], np.dtype[np.void]]


@pytest.fixture(scope="module")
def streams(recorded: list[Batch], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of several streams."""
    batches = [batch for batch in recorded if batch.producer == recorded[-1].producer]
    return write_archive(tmp_path_factory.mktemp("streams"), batches)


def run(gpu: Gpu, root: Path, pace: Pace, watch: Watch | None = None) -> tuple[Enacted, Launches, Timeline, Log]:
    """Re-enacts an archive; what was told, and the GPU's log of it."""
    timeline = Timeline(ArchiveFiles(str(root)), Selection())
    with gpu.opened() as enactor:
        launches = make_launches(timeline, enactor, lambda *_: None)
        done = enact(timeline, launches, enactor, pace, CLOCK, ahead_ns=2_000_000, watch=watch)
    return done, launches, timeline, gpu.log(done.launched)


def whole(timeline: Timeline) -> Rows:
    """All of it at once."""
    pieces = list(timeline.rows())
    return Rows(*(np.concatenate([getattr(p, name) for p in pieces]) for name in Rows.__slots__))


def test_the_gpu_runs_what_was_recorded(gpu: Gpu, streams: Path) -> None:
    """Another kernel, order, duration or stream would be another load."""
    done, launches, timeline, log = run(gpu, streams, Pace(speed=SPEED))
    rows, kernels = whole(timeline), timeline.kernels
    assert done.launched == done.started == len(timeline) == len(log)
    assert done.ended == "finished"
    assert not done.lost
    names = [entry_name(timeline.names[number])[:63] for number in kernels["name"][rows.kernel]]
    assert log["name"].astype(str).tolist() == names
    blocks = np.stack([kernels[f"block_{axis}"][rows.kernel] for axis in "xyz"], axis=1)
    assert (log["block"] == blocks).all()
    assert (log["dynamic_shared"] == kernels["dynamic_shared_memory"][rows.kernel]).all()
    told = log["duration"]
    assert ((told == 0) | (told < rows.duration_ns)).all()
    floors = np.where(told > 0, rows.duration_ns - told, -1)
    for kernel in np.unique(rows.kernel):  # one for each launch
        assert len(set(floors[(rows.kernel == kernel) & (told > 0)].tolist())) <= 1
    for queue in np.unique(rows.queue):
        mine = log["stream"][rows.queue == queue]
        assert not set(mine.tolist()) & set(log["stream"][rows.queue != queue].tolist())
    assert launches.functions == len(
        {(k["name"], k["registers_per_thread"], k["static_shared_memory"]) for k in kernels}
    )


def test_grids_are_cut_to_what_was_resident(gpu: Gpu, streams: Path) -> None:
    """A grid of many waves would take longer than its kernel did."""
    _, launches, timeline, log = run(gpu, streams, Pace(speed=SPEED))
    kernels, rows = timeline.kernels, whole(timeline)
    grid = np.stack([kernels[f"grid_{axis}"] for axis in "xyz"], axis=1).astype(np.int64)
    warps = -(-np.prod([kernels[f"block_{axis}"].astype(np.int64) for axis in "xyz"], axis=0) // 32)
    wave = kernels["active_warps"] // warps * 132
    expected = np.minimum(grid.prod(axis=1), wave)
    assert (log["grid"].astype(np.int64).prod(axis=1) == expected[rows.kernel]).all()
    assert launches.cut == int((grid.prod(axis=1) > wave).sum()) > 0


def test_turns_come_one_after_the_other(gpu: Gpu, streams: Path) -> None:
    """A loop that plays once, or for ever."""
    once, _, timeline, _ = run(gpu, streams, Pace(speed=SPEED))
    done, _, _, log = run(gpu, streams, Pace(speed=SPEED, loops=3))
    assert done.launched == 3 * once.launched == 3 * len(timeline)
    names = log["name"].reshape(3, -1)
    assert (names[0] == names[1]).all()
    assert (names[0] == names[2]).all()


def test_what_does_not_fit_is_lost_and_told(gpu: Gpu, recorded: list[Batch], tmp_path: Path) -> None:
    """A kernel that this GPU cannot run would end the replay, or be missing without a word."""
    batch = recorded[-1]
    configs = batch.columns.configs.copy()
    used = Counter(batch.columns.config[batch.columns.kind == 1].tolist())
    (most, count), *_ = used.most_common(1)
    configs["dynamic_shared_memory"][most] = 300_000
    root = write_archive(tmp_path / "big", [replace(batch, columns=replace(batch.columns, configs=configs))])
    done, launches, timeline, log = run(gpu, root, Pace(speed=SPEED))
    assert done.lost == Counter(does_not_fit=count)
    assert done.launched == len(log) == len(timeline) - count
    assert (launches.of_kernel < 0).sum() == 1


def test_priorities_and_kernels_that_are_too_short(gpu: Gpu, recorded: list[Batch], tmp_path: Path) -> None:
    """A stream that goes before others would not, and kernels that took longer than recorded would not be told of."""
    batch = recorded[-1]
    places, duration = batch.columns.places.copy(), batch.columns.duration_ns.copy()
    places["priority"] = -1 - np.arange(len(places)) % 2
    short = np.flatnonzero(batch.columns.kind == 1)[::5]
    duration[short] = 10
    columns = replace(batch.columns, places=places, duration_ns=duration)
    root = write_archive(tmp_path / "short", [replace(batch, columns=columns)])
    done, _, timeline, log = run(gpu, root, Pace(speed=SPEED))
    assert set(timeline.queues["priority"].tolist()) == {-1, -2}
    assert (log["priority"] == timeline.queues["priority"][whole(timeline).queue]).all()
    assert done.lengthened == len(short)


def test_lateness_is_counted_with_its_sign() -> None:
    """A replay that is early would be told as late, or the other way round."""
    done = Enacted()
    done.add(np.array([5, -3, 10], np.int64))
    done.add(np.zeros(0, np.int64))
    done.add(np.array([-7], np.int64))
    assert (done.started, done.early, done.most_early_ns, done.signed_ns) == (4, 2, 7, 5)
    assert (done.lateness.count, done.lateness.sum_ns, done.lateness.max_ns) == (4, 15, 10)


def test_a_stop_leaves_the_rest_out(gpu: Gpu, streams: Path) -> None:
    """A run that was told to stop would go on until its end, or lose count."""
    begin = CLOCK.monotonic_ns()
    done, *_ = run(
        gpu, streams, Pace(speed=parse_speed("0.01")), Watch(lambda: CLOCK.monotonic_ns() - begin > 2 * 10**9)
    )
    assert done.ended == "stopped"
    assert done.started == done.launched
    total = len(Timeline(ArchiveFiles(str(streams)), Selection()))
    assert done.launched + done.lost["stopped"] == total
    assert done.lost["stopped"] > 0


def command(gpu: Gpu, *words: str, cuda: bool = True) -> list[str]:
    """The command, which finds the imitation where CUDA's driver would be."""
    main = "import sys; from spanlite.cli.main import main; sys.exit(main())"
    path = str(gpu.built.folder) if cuda else ""
    return ["env", f"LD_LIBRARY_PATH={path}", sys.executable, "-c", main, "replay", "run", *words, "--to", "cuda"]


def test_the_command_tells_what_it_did(gpu: Gpu, streams: Path, tmp_path: Path) -> None:
    """Its account would not be that of the run."""
    words = command(gpu, str(streams), "--speed", "0.5", "--json", "-q", "--manifest", str(tmp_path / "m.json"))
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads((tmp_path / "m.json").read_text())
    timeline = Timeline(ArchiveFiles(str(streams)), Selection())
    assert told["launched"] == told["started"] == told["kernels"] == len(timeline)
    assert told["lost"] == {}
    assert told["left_out"] == dict(+timeline.left_out)
    assert told["start_error_us"]["max"] >= told["start_error_us"]["p99"] >= 0


def test_a_signal_ends_the_command(gpu: Gpu, streams: Path) -> None:
    """A GPU would be kept busy by a program that was told to end."""
    words = command(gpu, str(streams), "--speed", "0.01", "--loop", "0")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as running:
        loaded = Path(f"/proc/{running.pid}/maps")
        until(lambda: running.poll() is not None or b"libcuda" in loaded.read_bytes(), "libcuda is loaded")
        CLOCK.sleep_s(1.5)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said.startswith("stopped after")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "--speed 1"),
        (("--speed", "1", "-o", "x"), "--manifest"),
        (("--speed", "1", "--checkpoint", "x"), "cannot be taken back"),
        (("--speed", "1", "--ids", "remap"), "no ids of ours"),
        (("--speed", "1", "--late", "drop=1ms"), "when it can"),
        (("--speed", "1", "--shift", "offset=+1h"), "at=TIME"),
        (("--speed", "1", "--shift", "at=2001-01-01T00:00:00Z"), "later time"),
        (("--speed", "1", "--device", "7"), "CUDA sees 1"),
    ],
)
def test_wrong_calls_say_what_is_wrong(gpu: Gpu, streams: Path, words: tuple[str, ...], why: str) -> None:
    """A call that cannot be meant would run something else."""
    done = subprocess.run(command(gpu, str(streams), *words), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert why in done.stderr


def test_without_a_driver_it_says_what_it_needs(gpu: Gpu, streams: Path) -> None:
    """Whoever has no GPU would read about a missing symbol."""
    words = command(gpu, str(streams), "--speed", "1", cuda=False)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if "error_us" in done.stdout or done.returncode == 0:
        pytest.skip("there is a GPU here")
    assert done.returncode == 2
    assert "needs the driver of an NVIDIA GPU" in done.stderr


def test_a_dry_run_needs_no_gpu(gpu: Gpu, streams: Path) -> None:
    """A plan would want a machine with a GPU."""
    words = command(gpu, str(streams), "--speed", "2", "--dry-run", "--json", cuda=False)
    facts = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout)
    rows = whole(Timeline(ArchiveFiles(str(streams)), Selection()))
    assert facts["kernels"] == len(rows)
    assert facts["duration_s"] == pytest.approx((rows.start_ns[-1] - rows.start_ns[0]) / 2e9, abs=1e-8)


def test_the_log_is_what_records_say() -> None:
    """The tests above read the imitation's log by this type."""
    assert RECORD.names is not None
    assert {"name", "stream", "grid", "block", "duration"} <= set(RECORD.names)
