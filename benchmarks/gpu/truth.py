"""Does the collector count what ran? Traced programs against Kineto and against what a C++ program knows that it did.

    make native && python benchmarks/gpu/truth.py [--json FILE] [--programs eager …]

It needs an NVIDIA GPU, PyTorch and nvcc. Each workload runs twice under the collector, 100 loops more the second time:
the difference is exactly those loops, whatever start and warm-up launch. Kineto has counted 20 of them in a process of
its own. `profiler` rows run torch.profiler in a traced process: what Kineto counts then must be what it counts without
us, and both parts around it must be there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / root) for root in ("proto", "core", "agent", "pipeline"))]

from benchmarks._table import show  # noqa: E402 - run as a script, its folder is the path
from spanlite.agent.native import environment, find_collector  # noqa: E402
from spanlite.contract.names import demangle  # noqa: E402

_ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path[:5], os.environ.get("PYTHONPATH", "")])}
_PLAIN = {"add": 2, "scale": 1, "memset": 1, "memcpy": 1}
_JUDGED, _FEW, _MORE = 20, 40, 140


def traced(words: Sequence[str], **more: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """Runs a program under the collector; what the sink had added up when it was over, and the program's output."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "agent.sock"
        sink = subprocess.Popen(
            [sys.executable, str(_HERE / "sink.py"), str(socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_ENV,
        )
        assert sink.stdin is not None
        assert sink.stdout is not None
        assert sink.stdout.readline() == "ready\n"
        everything = {"SPANLITE_BUDGET": "full", **environment(find_collector(), socket, {}), **more}
        done = untraced(words, **everything)
        sink.stdin.close()
        told = json.loads(sink.stdout.readline())
        assert sink.wait(60) == 0
    return told, done


def untraced(words: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a program; fails where it does."""
    done = subprocess.run(words, env={**_ENV, **more}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stderr[-3000:]}"
    return done


def workload(name: str, *words: str) -> list[str]:
    """The command."""
    return [sys.executable, str(_HERE / "workloads.py"), name, *words]


def _short(name: str) -> str:
    """A name up to its template arguments: demanglers do not agree on how lambdas and brackets are written."""
    return re.split("[<(]", name.removeprefix("void "), maxsplit=1)[0]


def work_of(told: Mapping[str, Any]) -> Counter[str]:
    """Executions by name without template arguments, copies and sets by their kind."""
    found: Counter[str] = Counter()
    for name, count in told["executions"].items():
        found[_short(demangle(name))] += count
    return found


def kineto_of(told: Mapping[str, Any]) -> Counter[str]:
    """The same of Kineto's names."""
    found: Counter[str] = Counter()
    for name, count in told["count"].items():
        kind = "memcpy" if name.startswith("Memcpy") else "memset" if name.startswith("Memset") else _short(name)
        found[kind] += count
    return found


def compare(name: str) -> dict[str, Any]:
    """A workload's row."""
    judged = kineto_of(json.loads(untraced(workload(name, "--judge", str(_JUDGED))).stdout))
    few, _ = traced(workload(name, "--loops", str(_FEW)))
    more, _ = traced(workload(name, "--loops", str(_MORE)))
    ours = work_of(more)
    ours.subtract(work_of(few))
    expected = Counter({kernel: count * (_MORE - _FEW) // _JUDGED for kernel, count in judged.items()})
    differ = {k: (ours[k], expected[k]) for k in {*ours, *expected} if ours[k] != expected[k]}
    return {
        "program": name,
        "counted": ours.total(),
        "kineto": expected.total(),
        "names_that_differ": len(differ),
        "dropped": few["agent"]["dropped"] + more["agent"]["dropped"],
        "traces": more["traces"],
        "unknown_stage": more["stages"].get("unknown", 0) / max(sum(more["stages"].values()), 1),
        "detail": {
            "differ": dict(list(differ.items())[:5]),
            "stages": more["stages"],
            "agent": more["agent"],
            "kinds": more["kinds"],
            "failures": more["failures"],
            "bytes": more["bytes"],
            "batches": more["batches"],
        },
    }


def beside_profiler(name: str) -> dict[str, Any]:
    """torch.profiler in a traced process."""
    alone = kineto_of(json.loads(untraced(workload(name, "--judge", str(_JUDGED))).stdout))
    told, done = traced(workload(name, "--judge", str(_JUDGED), "--loops", str(_MORE)))
    beside = kineto_of(json.loads(done.stdout))
    per_loop = alone.total() / _JUDGED
    return {
        "program": f"{name}, profiler",
        "counted": sum(told["executions"].values()),
        "kineto": beside.total(),
        "names_that_differ": sum(alone[k] != beside[k] for k in {*alone, *beside}),
        "dropped": told["agent"]["dropped"],
        "traces": told["traces"],
        "unknown_stage": told["stages"].get("unknown", 0) / max(sum(told["stages"].values()), 1),
        "detail": {
            "kineto_alone": alone.total(),
            "at_least_expected": per_loop * 2 * _MORE,
            "agent": told["agent"],
            "failures": told["failures"],
        },
    }


def plain_program() -> dict[str, Any]:
    """The C++ program, 20,000 times its five pieces of work."""
    times = 20_000
    with tempfile.TemporaryDirectory() as folder:
        binary = str(Path(folder) / "launch")
        untraced(["nvcc", "-O2", "-arch=native", "-o", binary, str(_HERE / "launch.cu")])
        told, _ = traced([binary, str(times)])
    ours = work_of(told)
    return {
        "program": "C++",
        "counted": ours.total(),
        "kineto": 5 * times,
        "names_that_differ": len(_PLAIN) - sum(ours[kernel] == each * times for kernel, each in _PLAIN.items()),
        "dropped": told["agent"]["dropped"],
        "traces": told["traces"],
        "unknown_stage": 0.0,
        "detail": {"work": dict(ours), "agent": told["agent"], "failures": told["failures"]},
    }


_TASKS: dict[str, Callable[[], dict[str, Any]]] = {
    "c++": plain_program,
    **{name: partial(compare, name) for name in ("eager", "graph", "prefill", "train", "tiny")},
    **{f"{name}-profiler": partial(beside_profiler, name) for name in ("eager", "graph")},
}


def _tried(program: str) -> dict[str, Any] | None:
    try:
        row = _TASKS[program]()
    except (AssertionError, json.JSONDecodeError, subprocess.SubprocessError) as error:
        print(f"{program} failed: {error}", file=sys.stderr, flush=True)
        return None
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def main(path: Path | None, programs: Sequence[str]) -> None:
    """All programs; one that fails is told and does not hide the others."""
    rows = [row for program in programs if (row := _tried(program))]
    show("What ran and what was counted", [{k: v for k, v in row.items() if k != "detail"} for row in rows])
    if path:
        path.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    if len(rows) < len(programs):
        sys.exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--programs", nargs="+", default=list(_TASKS), choices=list(_TASKS))
    words = parser.parse_args()
    main(words.json, words.programs)
