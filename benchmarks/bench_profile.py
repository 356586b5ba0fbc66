"""Where the metrics job's time goes: by step of its stages in one process, and by thread of a TaskManager.

    python benchmarks/bench_profile.py [--json FILE]

`steps` drives both stages over state in memory with an agent's batches of a recorded serving run: each step's own
processor time, what it calls of other steps left out. `threads` is the processor time of a TaskManager's threads while
it reads 16 M spans from Kafka in thread mode with two subtasks (it needs `make flink-venv`); what compiles and loads is
done once in a process's life and weighs the less, the longer it lives.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT)]

from benchmarks._flink import SETTINGS, MetricsJob, make_topics  # noqa: E402 - run as a script, its folder is the path
from benchmarks._process import cpu_s  # noqa: E402
from benchmarks._table import Figure, json_path, show  # noqa: E402
from benchmarks.otel_collector.ours import Ours  # noqa: E402
from spanlite.agent.batcher import BATCH_ROWS  # noqa: E402
from spanlite.contract.columns import Kind  # noqa: E402
from spanlite.pipeline import foldstage, producer, totalstage  # noqa: E402
from spanlite.pipeline.points import Totals  # noqa: E402
from spanlite.pipeline.series import SeriesRegistry  # noqa: E402
from spanlite.pipeline.windows import Windows  # noqa: E402
from tests.stack import load  # noqa: E402
from tests.stack.cluster import VENV  # noqa: E402
from tests.stack.flink import Flink  # noqa: E402
from tests.stack.kafka import Kafka  # noqa: E402

_PRODUCERS, _COPIES = 8, 32
_STEPS: list[tuple[str, Any, str]] = [
    ("decode", foldstage, "decode_batch"),
    ("check", foldstage, "check_batch"),
    ("group and sum", producer, "fold_batch"),
    ("name series", SeriesRegistry, "resolve"),
    ("keep and close windows", Windows, "add"),
    ("keep and close windows", Windows, "close_due"),
    ("write state", foldstage, "pack"),
    ("write state", foldstage, "encode_progress"),
    ("read pieces", totalstage, "unpack"),
    ("add to totals", Totals, "update"),
    ("encode points", totalstage, "encode_cumulative"),
]
_THREADS = {
    "fold by": "fold by producer: Python, state",
    "total by": "total by GPU: Python, state, sink",
    "Source": "read from Kafka",
    "kafka-": "write to Kafka",
    "C1 Comp": "compile Java",
    "C2 Comp": "compile Java",
    "GC ": "collect Java's garbage",
    "java": "start",
}


class Steps:
    """Processor time by step, each without the steps that it calls."""

    def __init__(self) -> None:
        self.own_ns: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._open = ["the rest"]
        self._last_ns = time.process_time_ns()

    def timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time put down to the step."""

        def call(*positional: Any, **named: Any) -> Any:
            self.turn()
            self._open.append(step)
            self.calls[step] += 1
            try:
                return function(*positional, **named)
            finally:
                self.turn()
                self._open.pop()

        return call

    def turn(self) -> None:
        """Puts the time since the last turn down to the step that is open."""
        now_ns = time.process_time_ns()
        self.own_ns[self._open[-1]] += now_ns - self._last_ns
        self._last_ns = now_ns


def steps() -> list[dict[str, Figure]]:
    """The first table."""
    values = [message.value for message in load.messages(1, _COPIES, rows=BATCH_ROWS)]
    spans = sum(len(batch.columns) for batch in load.recorded(BATCH_ROWS)) * _COPIES
    for value in values[:4]:
        Ours().take(value)
    ours, measured = Ours(), Steps()
    with ExitStack() as stack:
        for step, owner, name in _STEPS:
            stack.enter_context(patch.object(owner, name, measured.timed(step, getattr(owner, name))))
        measured.turn()
        measured.own_ns.clear()
        for value in values:
            ours.take(value)
        ours.finish()
        measured.turn()
    assert sum(point.spans for point in ours.made()) == _COPIES * _work(), "spans are missing from the points"
    all_ns = sum(measured.own_ns.values())
    rows: list[dict[str, Figure]] = [
        {
            "step": step,
            "calls": measured.calls[step],
            "share_percent": 100 * own_ns / all_ns,
            "ns_per_span": own_ns / spans,
            "us_per_batch": own_ns / 1e3 / len(values),
        }
        for step, own_ns in measured.own_ns.most_common()
    ]
    whole: dict[str, Figure] = {
        "step": "all",
        "calls": len(values),
        "share_percent": 100.0,
        "ns_per_span": all_ns / spans,
        "us_per_batch": all_ns / 1e3 / len(values),
    }
    return [*rows, whole]


def _work() -> int:
    return sum(int((batch.columns.kind != Kind.RANGE).sum()) for batch in load.recorded(BATCH_ROWS))


def threads() -> list[dict[str, Figure]]:
    """The second table."""
    messages = list(load.messages(_PRODUCERS, _COPIES, rows=BATCH_ROWS))
    settings = {**SETTINGS, "metrics.fetcher.update-interval": "2000"}
    with tempfile.TemporaryDirectory(prefix="spanlite-bench-") as name:
        folder = Path(name)
        with (
            Kafka(folder / "kafka") as kafka,
            Flink(folder / "flink", venv=VENV, slots=2, settings=settings) as flink,
        ):
            make_topics(kafka, "profile")
            load.send(kafka.bootstrap, "profile.spans", [(message.key, message.value) for message in messages])
            job = MetricsJob(kafka, flink, "profile")
            job.await_read(len(messages))
            used = _by_thread(job.pid)
            job.drain()
            job.check(_PRODUCERS * _COPIES * _work())
    all_s = sum(used.values())
    return [
        {"thread": thread, "cpu_s": seconds, "share_percent": 100 * seconds / all_s} for thread, seconds in used.items()
    ]


def _by_thread(pid: int) -> dict[str, float]:
    """Processor seconds of the threads that live now, by what they do, the busiest first."""
    used: dict[str, float] = {}
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        name = stat.read_text().rpartition(")")[0].partition("(")[2]
        does = next((does for begin, does in _THREADS.items() if name.startswith(begin)), "the rest of Flink")
        used[does] = used.get(does, 0.0) + cpu_s(stat)
    return dict(sorted(used.items(), key=lambda pair: -pair[1]))


def main(path: Path | None) -> None:
    """Both tables."""
    by_step = steps()
    show("Stages of the metrics job, one process, state in memory", by_step)
    by_thread = threads()
    show("Threads of a TaskManager, thread mode, two subtasks", by_thread)
    if path:
        path.write_text(json.dumps({"steps": by_step, "threads": by_thread}, indent=1) + "\n")


if __name__ == "__main__":
    main(json_path(__doc__ or ""))
