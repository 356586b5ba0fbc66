"""What it costs to be traced: loops a second of GPU programs in fresh processes, by turns, with and without.

    make native && python benchmarks/gpu/overhead.py [--json FILE] [--rounds N] [--programs graph …]

It needs an NVIDIA GPU and PyTorch. Programs of workloads.py, each run for a few seconds in `off` (CUPTI is never
loaded), `full` (every kernel, stages by NVTX), `no stages` and `duty` (20 ms in each 200). A round runs all of them in
an order of its own. `ratio` is the median over the rounds of off / this in the same round: 1.01 is 1 % slower.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE.parents[1])]

from benchmarks._table import show  # noqa: E402 - run as a script, its folder is the path
from benchmarks.gpu.truth import traced, untraced, workload  # noqa: E402

_PROGRAMS = ("graph", "prefill", "train", "eager", "tiny")
_WAYS: dict[str, dict[str, str] | None] = {
    "off": None,
    "duty": {"SPANLITE_DUTY": "20/200"},
    "no stages": {"SPANLITE_STAGES": "0"},
    "full": {},
}
_SECONDS = "3"


def once(program: str, way: str) -> dict[str, Any]:
    """Loops a second, and spans a second where it was traced."""
    words = workload(program, "--seconds", _SECONDS)
    more = _WAYS[way]
    if more is None:
        return {"loops_per_s": json.loads(untraced(words).stdout)["loops_per_s"], "spans": 0, "dropped": 0}
    told, done = traced(words, **more)
    return {
        "loops_per_s": json.loads(done.stdout)["loops_per_s"],
        "spans": sum(told["executions"].values()),
        "dropped": told["agent"]["dropped"],
    }


def main(path: Path | None, rounds: int, programs: Sequence[str]) -> None:
    """The table."""
    made: dict[tuple[str, str], list[dict[str, Any]]] = {}
    order = random.Random(1)  # noqa: S311 - an order, no secret
    for _ in range(rounds):
        for program in programs:
            for way in order.sample(list(_WAYS), len(_WAYS)):
                made.setdefault((program, way), []).append(once(program, way))
                print(program, way, made[program, way][-1], file=sys.stderr, flush=True)
    rows = []
    for (program, way), runs in sorted(made.items()):
        ratios = [off["loops_per_s"] / run["loops_per_s"] for off, run in zip(made[program, "off"], runs, strict=True)]
        rows.append(
            {
                "program": program,
                "way": way,
                "loops_per_s": statistics.median(run["loops_per_s"] for run in runs),
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
                "spans": statistics.median(run["spans"] for run in runs),
                "dropped": max(run["dropped"] for run in runs),
            }
        )
    show("Loops a second, off / traced", rows)
    if path:
        path.write_text(
            json.dumps({"rows": rows, "runs": {" ".join(key): runs for key, runs in made.items()}}, indent=1) + "\n"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", nargs="+", default=_PROGRAMS, choices=_PROGRAMS)
    words = parser.parse_args()
    main(words.json, words.rounds, words.programs)
