"""Does attach() count what ran? Both collectors, before and after torch, and the ends that Python programs have.

    make native && python benchmarks/gpu/from_python.py [--json FILE] [--only WORDS …]

It needs an NVIDIA GPU and PyTorch, and Triton for the last rows. Each row is a process of its own: it launches so many
additions within a range, and the sink says how many executions of that kernel came, and in which stage.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / root) for root in ("proto", "core", "agent", "pipeline"))]

from benchmarks._table import show  # noqa: E402 - run as a script, its folder is the path

_ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path[:5], os.environ.get("PYTHONPATH", "")])}
_LAUNCHES = 20_000
_BEGIN = """
import json, os, sys, time
socket, native, when, launches = sys.argv[1], sys.argv[2] == "native", sys.argv[3], int(sys.argv[4])
from spanlite.agent import attach
def begin():
    return attach(socket=socket, native=native, budget="full")
if when == "before torch":
    tracing = begin()
import torch
if when == "after torch":
    tracing = begin()
x = torch.zeros(256, device="cuda")
if when == "after cuda":
    torch.cuda.synchronize()
    tracing = begin()
def work(count):
    for _ in range(count):
        x.add_(1.0)
    torch.cuda.synchronize()
with tracing.range("step"):
    begun = time.perf_counter()
    work(launches)
    took = time.perf_counter() - begun
state, why = tracing.state, tracing.why
more = {}
"""
_END = """
print(json.dumps({"state": state, "why": why, "took": took, **more}), flush=True)
"""
_PROFILER = """
from torch.profiler import ProfilerActivity, profile
def judged():
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work(1000)
    return sum("FunctorOnSelf_add" in event.name for event in seen.events())
with tracing.paused():
    more["kineto"] = judged()
work(1000)
"""
_FORK = """
import warnings
warnings.simplefilter("ignore")
if os.fork() == 0:
    os._exit({"forked": 0}.get(tracing.state, 1))
more["child"] = os.waitstatus_to_exitcode(os.wait()[1])
"""
_JIT = """
import torch._inductor.config
compiled = torch.compile(lambda a: torch.relu(a * 3 + 1).sum())
for _ in range(100):
    compiled(torch.ones(4096, device="cuda"))
torch.cuda.synchronize()
from kernels_of_ours import double
for _ in range(100):
    double(x)
torch.cuda.synchronize()
time.sleep(2)
"""
_KERNELS = """
import triton
import triton.language as tl
@triton.jit
def _double(at, N: tl.constexpr):
    place = tl.arange(0, N)
    tl.store(at + place, tl.load(at + place) * 2)
def double(x):
    _double[(1,)](x, x.numel())
"""
_ENDS = {
    "return": "",
    "sys.exit(3)": "sys.exit(3)",
    "raise": "raise SystemExit(4)",
    "os._exit(5)": "time.sleep(1.5); os._exit(5)",
    "while a kernel runs": "torch.cuda._sleep(2_000_000_000)",
}


def ran(script: str, *words: str, folder: Path) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """What the sink added up, and the program as it ended."""
    with tempfile.TemporaryDirectory() as place:
        socket = Path(place) / "agent.sock"
        command = [sys.executable, str(_HERE / "sink.py"), str(socket)]
        sink = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_ENV)
        assert sink.stdin is not None
        assert sink.stdout is not None
        assert sink.stdout.readline() == "ready\n"
        path = folder / "program.py"
        path.write_text(_BEGIN + script)
        (folder / "kernels_of_ours.py").write_text(_KERNELS)
        program = [sys.executable, str(path), str(socket), *words]
        done = subprocess.run(program, env=_ENV, capture_output=True, text=True, timeout=120, check=False)
        sink.stdin.close()
        told = json.loads(sink.stdout.readline())
        sink.wait(60)
    return told, done


def row(name: str, script: str, native: str, when: str, folder: Path, *, status: int = 0) -> dict[str, Any]:
    """One process: what came of it beside what ran."""
    begun = time.perf_counter()
    told, done = ran(script, native, when, str(_LAUNCHES), folder=folder)
    said = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    counted = sum(count for kernel, count in told["executions"].items() if "FunctorOnSelf_add" in kernel)
    lasting = sorted(kernel for kernel in told["executions"] if kernel.startswith(("inductor:", "triton")))
    if done.returncode != status or done.stderr:
        print(f"{name}, {native}, {when}: status {done.returncode}: {done.stderr[-2000:]}", file=sys.stderr)
    return {
        "what": name,
        "collector": native,
        "attached": when,
        "state": f"{said.get('state', '-')} {said.get('why', '')}".strip(),
        "ran": _LAUNCHES,
        "counted": counted,
        "in step": told["stages"].get("step", 0),
        "dropped": told["agent"]["dropped"],
        "us a launch": round(said.get("took", 0.0) / _LAUNCHES * 1e6, 2),
        "status": done.returncode,
        "more": " ".join([*(f"{key}={said[key]}" for key in ("kineto", "child") if key in said), *lasting]) or "-",
        "seconds": round(time.perf_counter() - begun, 1),
    }


def main(path: Path | None, only: Sequence[str]) -> None:
    """All rows, or those that have one of the words in their collector and name."""
    tasks: list[tuple[str, str, str, str, int]] = []
    for native in ("native", "python"):
        times = ("before torch", "after torch", "after cuda")
        tasks += [("additions", _END, native, when, 0) for when in times]
        tasks.append(("torch.profiler beside, 1,000 more", _PROFILER + _END, native, "after torch", 0))
        tasks.append(("fork", _FORK + _END, native, "after torch", 0))
        for name, last in _ENDS.items():
            status = {"sys.exit(3)": 3, "raise": 4, "os._exit(5)": 5}.get(name, 0)
            tasks.append((name, _END + last, native, "before torch", status))
        tasks.append(("just in time", _JIT + _END, native, "before torch", 0))
    chosen = [task for task in tasks if not only or any(word in f"{task[2]} {task[0]}" for word in only)]
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            row(name, script, native, when, Path(folder), status=status)
            for name, script, native, when, status in chosen
        ]
    show("attach() on this GPU", rows, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORDS")
    words = parser.parse_args()
    main(words.json, words.only)
