"""What it costs to be traced: loops a second of GPU programs in fresh processes, by turns, with and without.

    make native && python benchmarks/gpu/overhead.py [--json FILE] [--rounds N] [--programs graph …] [--ways full …]

It needs an NVIDIA GPU and PyTorch. A process runs the programs of workloads.py one after the other, each for some
seconds after some seconds that do not count. Ways: `off` (CUPTI is never loaded), `idle` (the collector is there, and
nobody listens), `default` (a budget of 1 %), `full` (every kernel, stages by NVTX), `no stages`, and two peers:
cupti-python's callbacks, torch.profiler. They run in turns after an `off`. `ratio` is the loops a second of the last
`off` over this one's, the median over the rounds: 1.01 is 1 % slower; `thread` is the same of the main thread's
processor time a loop, which a launch-bound program is made of. RSS and GPU memory in MiB, processor time of all
threads as cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE.parents[1])]

from benchmarks._table import show  # noqa: E402 - run as a script, its folder is the path
from benchmarks.gpu.truth import traced, untraced  # noqa: E402
from spanlite.agent.native import environment, find_collector  # noqa: E402

_PROGRAMS = ("graph", "prefill", "train", "eager", "tiny")
_TRACED: dict[str, dict[str, str]] = {
    "default": {"SPANLITE_BUDGET": "1"},
    "full": {"SPANLITE_BUDGET": "full"},
    "no stages": {"SPANLITE_BUDGET": "full", "SPANLITE_STAGES": "0"},
}
_PEERS = ("cupti-python", "torch.profiler")
_WAYS = ("off", "idle", *_TRACED, *_PEERS)


def once(programs: Sequence[str], way: str, seconds: float, warm: float) -> list[dict[str, Any]]:
    """A process; one dictionary a program."""
    words = [sys.executable, str(_HERE / "workloads.py"), *programs, "--seconds", str(seconds), "--warm", str(warm)]
    agent: dict[str, Any] = {"spans": 0, "weight": 0, "dropped": 0}
    if way in _TRACED:
        told, done = traced(words, **_TRACED[way])
        agent = {
            "spans": sum(told["executions"].values()),
            "weight": told["weight"],
            "dropped": told["agent"]["dropped"],
            "failures": told["failures"],
        }
    elif way == "idle":
        done = untraced(words, **environment(find_collector(), Path("/nowhere/agent.sock"), {}))
    else:
        done = untraced([*words, "--peer", way if way in _PEERS else "none"])
    return [{**json.loads(line), **agent} for line in done.stdout.splitlines()]


_KERNELS = {"graph": 176, "eager": 176, "prefill": 192, "train": 760, "tiny": 2000}
"""A loop, as Kineto has it (truth.py)."""


def _stands_for(program: str, run: dict[str, Any]) -> float:
    """What the spans stand for and what is told as lost, over what ran; sensible where a process runs one program."""
    return float((run["weight"] + run["dropped"]) / (run["loops_in_all"] * _KERNELS[program]))


def row_of(program: str, way: str, runs: list[dict[str, Any]], beside: list[dict[str, Any]]) -> dict[str, Any]:
    """A line of the table."""
    pairs = list(zip(beside, runs, strict=True))
    ratios = [off["loops_per_s"] / run["loops_per_s"] for off, run in pairs]
    threads = [run["thread_s"] / run["loops"] / (off["thread_s"] / off["loops"]) for off, run in pairs]
    return {
        "program": program,
        "way": way,
        "loops_per_s": statistics.median(run["loops_per_s"] for run in runs),
        "ratio": round(statistics.median(ratios), 4),
        "least": round(min(ratios), 4),
        "most": round(max(ratios), 4),
        "thread": round(statistics.median(threads), 4),
        "cores": round(statistics.median(run["process_s"] / run["seconds"] for run in runs), 3),
        "rss_mib": round(statistics.median(run["rss_mib"] for run in runs)),
        "gpu_mib": round(statistics.median(run["gpu_mib"] for run in runs)),
        "dropped": max(run["dropped"] for run in runs),
        "launched": round(statistics.median(_stands_for(program, run) for run in runs), 4),
    }


def main(words: argparse.Namespace) -> None:
    """The table; a process that fails is told and does not hide the others."""
    made: dict[tuple[str, str], list[dict[str, Any]]] = {}
    beside: dict[tuple[str, str], list[dict[str, Any]]] = {}
    last_off: list[dict[str, Any]] = []
    for way in ["off", *words.ways * words.rounds]:
        try:
            runs = once(words.programs, way, words.seconds, words.warm)
        except (AssertionError, subprocess.SubprocessError, json.JSONDecodeError) as error:
            print(f"{way} failed: {str(error)[-2000:]}", file=sys.stderr, flush=True)
            continue
        told = [round(run["loops_per_s"], 2) for run in runs]
        print(way, told, runs[0].get("failures", ""), file=sys.stderr, flush=True)
        if way == "off":
            last_off = runs
        for program, run, off in zip(words.programs, runs, last_off, strict=True):
            made.setdefault((program, way), []).append(run)
            beside.setdefault((program, way), []).append(off)
    rows = [row_of(*key, runs, beside[key]) for key, runs in sorted(made.items())]
    show("Loops a second, off / traced", rows)
    if words.json:
        kept = {" ".join(key): runs for key, runs in made.items()}
        words.json.write_text(json.dumps({"rows": rows, "runs": kept}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm", type=float, default=4.0)
    parser.add_argument("--programs", nargs="+", default=list(_PROGRAMS), choices=_PROGRAMS)
    parser.add_argument("--ways", nargs="+", default=["default", "off"], choices=_WAYS)
    main(parser.parse_args())
