"""What a launch, or a kernel of a CUDA graph, costs in each state of CUPTI (residue.cu says what steps are).

    python benchmarks/gpu/residue.py [--rounds N] [--works launch graph8] [--steps cwm …] [--json FILE]

A process for each sequence of steps and round, in turns. Printed is the median over the rounds: nanoseconds a kernel,
and how far CUPTI's correlation counter came in 100 launches at that step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

_HERE = Path(__file__).parent
sys.path.insert(0, str(_HERE.parents[1]))

from benchmarks._table import show  # noqa: E402 - run as a script, its folder is the path

WORKS = ("launch", "graph8", "graph60")
STEPS = {
    "cwm": "CUPTI is not loaded",
    "pcwm": "subscribed",
    "acwm": "activity callbacks registered",
    "pacwm": "both",
    "prcwm": "subscribed, a callback of one call",
    "pRcwm": "subscribed, a callback of new contexts",
    "parRcwm": "all of these",
    "cparRwm": "the same, after the context",
    "parRcwum": "and unsubscribed again",
    "scwlmLm": "callbacks of launches on; off",
    "scwemdm": "kinds on after the context; off",
    "cwsEmDm": "kinds on for the context; off",
    "cwsemdxyrm": "off, and all callbacks off",
    "cwsemdusm": "off, and subscribed anew",
    "secwmdmFm": "kinds on before the context; off; forced flush",
    "secwmdmdmFm": "the same; off again; forced flush",
    "secwmdmdFmemdm": "off twice, forced flush; on again; off",
}


def build(folder: Path, cupti: Path) -> str:
    """The compiled program."""
    binary = str(folder / "residue")
    library = next(path for name in ("lib64", "lib") if (path := cupti / name).is_dir())
    words = ["nvcc", "-O2", "-arch=native", "-o", binary, str(_HERE / "residue.cu"), "-I", str(cupti / "include")]
    subprocess.run([*words, "-L", str(library), f"-Xlinker=-rpath={library}", "-lcupti", "-lcuda"], check=True)
    return binary


def measured(binary: str, work: str, steps: str) -> dict[str, Any] | None:
    """One process; None where it failed, which is told."""
    done = subprocess.run([binary, work, steps], capture_output=True, text=True, timeout=60, check=False)
    if done.stderr:
        print(work, steps, done.returncode, done.stderr[-300:], file=sys.stderr, flush=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def row_of(work: str, steps: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the runs of one sequence."""
    points = list(zip(*(run["measured"] for run in runs), strict=True))
    return {
        "work": work,
        "steps": steps,
        "": STEPS.get(steps, ""),
        "ns": " ".join(f"{median(run[0] for run in point):.0f}" for point in points),
        "counter": " ".join(f"{median(run[1] for run in point):.0f}" for point in points),
    }


def main(rounds: int, works: Sequence[str], sequences: Sequence[str], cupti: Path, path: Path | None) -> None:
    """All sequences, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        binary = build(Path(folder), cupti)
        tried = [measured(binary, work, steps) for _ in range(rounds) for work in works for steps in sequences]
    runs = [run for run in tried if run]
    rows = [
        row_of(work, steps, those)
        for work in works
        for steps in sequences
        if (those := [run for run in runs if (run["work"], run["steps"]) == (work, steps)])
    ]
    show("What CUPTI leaves behind", rows)
    if path:
        path.write_text(json.dumps({"rows": rows, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", nargs="+", default=WORKS, choices=WORKS)
    parser.add_argument("--steps", nargs="+", default=list(STEPS), metavar="STEPS")
    parser.add_argument("--cupti", type=Path, default=Path("/usr/local/cuda/targets/x86_64-linux"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    words = parser.parse_args()
    main(words.rounds, words.works, words.steps, words.cupti, words.json)
