"""How faithful is a re-enacted timeline? `spanlite replay run --to cuda` under the collector, beside what was recorded.

    spanlite ingest serve_steady.parquet --archive serve     # or X.bin.xz, raw buffers
    make native && python benchmarks/gpu/enact.py serve … [--seconds 8] [--speed 1] [--beside N] [--json FILE]

It needs an NVIDIA GPU. CUPTI is the judge: the command runs under the collector, and its kernels, in the order of their
launches, are those of the archive in the order of their starts. Errors of starts are against the median of all (CUPTI's
clock and the host's are not the same); those of durations and shapes are absolute. `told` is what the command says
itself, from the times that the kernels write down.

`--beside N` re-enacts N times at once, each in a process of its own: a GPU that is too small for its load.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / root) for root in ("proto", "core", "agent", "pipeline", "replay"))]

from benchmarks._table import show  # noqa: E402 - run as a script, its folder is the path
from spanlite.agent.native import environment, find_collector  # noqa: E402
from spanlite.cli.replay_run import ArchiveFiles  # noqa: E402
from spanlite.replay.cuda.ptx import entry_name  # noqa: E402
from spanlite.replay.cuda.timeline import Timeline  # noqa: E402
from spanlite.replay.selection import Selection  # noqa: E402

_ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path[:6], os.environ.get("PYTHONPATH", "")])}
_TOLD = (
    *("start_error_us", "lengthened", "lost", "took_s", "launch_ns", "gap_ns", "train_launch_ns"),
    *("train_gap_ns", "in_trains", "clock_uncertainty_ns"),
)
_OURS = ("spanlite_echo", "spanlite_calibration")


def command(archive: Path, speed: str, until_ns: int) -> list[str]:
    """The command that re-enacts."""
    main_of = "import sys; from spanlite.cli.main import main; sys.exit(main())"
    words = [sys.executable, "-c", main_of, "replay", "run", str(archive), "--to", "cuda"]
    return [*words, "--until", str(until_ns), "--speed", speed, "--json", "-q"]


def traced(words: list[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Runs the command under the collector; what it says, and the columns of its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        socket, kept = Path(folder) / "agent.sock", Path(folder) / "kept.npz"
        agent = subprocess.Popen(
            [sys.executable, str(_HERE / "keep.py"), str(socket), str(kept)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_ENV,
        )
        assert agent.stdin is not None
        assert agent.stdout is not None
        assert agent.stdout.readline() == "ready\n"
        told = plain(words, **{"SPANLITE_BUDGET": "full", **environment(find_collector(), socket, {})})
        agent.stdin.close()
        losses = json.loads(agent.stdout.readline())
        assert agent.wait(60) == 0
        assert not losses["dropped"], losses
        with np.load(kept) as columns:
            return told, dict(columns)


def plain(words: list[str], **more: str) -> dict[str, Any]:
    """Runs the command; what it says."""
    done = subprocess.run(words, env={**_ENV, **more}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stderr[-3000:]}"
    return dict(json.loads(done.stdout))


def compare(archive: Path, speed: str, until_ns: int) -> dict[str, Any]:
    """One archive's row."""
    timeline = Timeline(ArchiveFiles(str(archive)), Selection(to_ns=until_ns))
    rows = list(timeline.rows())
    start, duration, kernel, queue = (
        np.concatenate([getattr(r, n) for r in rows]) for n in ("start_ns", "duration_ns", "kernel", "queue")
    )
    told, kept = traced(command(archive, speed, until_ns))
    names = kept["names"][kept["name"]]
    order = np.lexsort((kept["start_ns"], kept["launch"]))  # a train is one launch
    order = order[~np.isin(names[order], _OURS)]
    # Calibration launches each kernel some times: those that are ours to judge are the last.
    order = order[len(order) - len(start) :]
    of = timeline.kernels[kernel]
    entries = np.array([entry_name(name) for name in timeline.names])
    error = kept["start_ns"][order] - kept["start_ns"][order[0]] - ((start - start[0]) / float(speed))
    late = error - np.median(error)
    longer = kept["duration_ns"][order] - duration
    medians = [
        np.log(np.median((duration + longer)[kernel == k]) / np.median(duration[kernel == k]))
        for k in np.unique(kernel)
    ]
    uncut = kept["grid_x"][order] == of["grid_x"]
    return {
        "archive": archive.name,
        "kernels": len(start),
        "seen": len(order),
        "names_equal": bool((names[order] == entries[of["name"]]).all()),
        "registers_equal": share(kept["registers_per_thread"][order] == of["registers_per_thread"]),
        "occupancy_equal": share(kept["active_warps"][order] == of["active_warps"]),
        "grids_equal": share(uncut),
        "occupancy_differs": differing(kept, order, of),
        "start_us": quantiles(np.abs(late) / 1e3),
        "start_us_by_queue": [quantiles(np.abs(late[queue == q]) / 1e3) for q in np.unique(queue)],
        "start_p99_us_by_tenth": [float(np.quantile(np.abs(part), 0.99) / 1e3) for part in np.array_split(late, 10)],
        "duration_us": quantiles(np.abs(longer) / 1e3),
        "duration_bias_ns": float(np.median(longer)),
        "shape_p50_worst": float(np.max(np.abs(medians))),
        "worst_shapes": worst(timeline, kernel, duration, duration + longer),
        "busy_ratio": float((duration + longer).sum() / duration.sum()),
        "told": {name: told[name] for name in _TOLD},
        "functions": told["functions"],
        "grids_cut": told["grids_cut"],
        "gpu": told["gpu"],
    }


def worst(timeline: Timeline, kernel: np.ndarray, asked: np.ndarray, got: np.ndarray) -> list[dict[str, Any]]:
    """The shapes whose medians are furthest off."""
    found = []
    for at in np.unique(kernel).tolist():
        one, rows = timeline.kernels[at], kernel == at
        facts = {name: int(one[name]) for name in one.dtype.names or () if name != "name"}
        found.append({**facts, "n": int(rows.sum()), "asked": np.median(asked[rows]), "got": np.median(got[rows])})
    return sorted(found, key=lambda one: -abs(np.log(one["got"] / one["asked"])))[:6]


def differing(kept: dict[str, np.ndarray], order: np.ndarray, of: np.ndarray) -> list[dict[str, Any]]:
    """Shapes whose theoretical occupancy is another one, as recorded and as re-enacted."""
    rows = np.flatnonzero(kept["active_warps"][order] != of["active_warps"])
    said = {}
    for row in rows.tolist():
        recorded = {name: int(of[name][row]) for name in of.dtype.names or () if name in kept and name != "name"}
        got = {name: int(kept[name][order[row]]) for name in recorded}
        said[json.dumps([recorded, got])] = {"recorded": recorded, "got": got}
    return list(said.values())


def share(equal: np.ndarray) -> float:
    return float(np.mean(equal))


def quantiles(values: np.ndarray) -> dict[str, float]:
    found = np.quantile(values, [0.5, 0.9, 0.99, 1])
    return dict(zip(("p50", "p90", "p99", "max"), map(float, found), strict=True))


def beside(words: list[str], count: int) -> list[dict[str, Any]]:
    """What each of some runs at once says of itself, untraced."""
    running = [subprocess.Popen(words, env=_ENV, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return [json.loads(one.communicate()[0])["start_error_us"] for one in running]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="+", type=Path, metavar="ARCHIVE")
    parser.add_argument("--seconds", type=float, default=8, help="of each archive (default %(default)s)")
    parser.add_argument("--speed", default="1")
    parser.add_argument("--beside", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    for archive in args.archives:
        until_ns = Timeline(ArchiveFiles(str(archive)), Selection()).first_ns + round(args.seconds * 1e9)
        words = command(archive, args.speed, until_ns)
        row = compare(archive, args.speed, until_ns)
        row["untraced"] = plain(words)["start_error_us"]
        if args.beside:
            row["beside"] = beside(words, args.beside)
        found.append(row)
        print(json.dumps(row), file=sys.stderr)
    show(
        f"re-enacted on {found[0]['gpu']}, speed {args.speed}",
        [
            {
                "archive": row["archive"],
                "kernels": row["kernels"],
                "start p50 µs": round(row["start_us"]["p50"], 2),
                "p99": round(row["start_us"]["p99"], 1),
                "duration p50 µs": round(row["duration_us"]["p50"], 3),
                "p99 ": round(row["duration_us"]["p99"], 2),
                "busy": round(row["busy_ratio"], 4),
                "occupancy": round(row["occupancy_equal"], 4),
                "untraced p99": round(row["untraced"]["p99"], 1),
            }
            for row in found
        ],
    )
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
