"""How exactly a replay arrives behind a real Kafka: the command, a broker on loopback, a reader that notes the times.

    python benchmarks/bench_replay_kafka.py [--json FILE] [--seconds S] [--first]

An archive of small batches whose agents sent them at the starts of a recorded serving run's kernels, slowed down by an
exact ratio to 500 and 1,000 batches a second, is replayed by `spanlite replay run`. A second process reads the
topic and notes when it has each record. The archive is read before it starts (`--prime`): two cores are too few for
all four. Error is that time less the due time, against the latest start of the replay for which nothing is early, so
that it holds what pacer, client, broker and reader add to the fastest record. KS is the greatest distance between the
distributions of gaps asked for and seen.

A young broker's figures are those of its JVM: it compiles what it runs for the first minute or two of a load, which
takes most of a core, and each collection of a small young generation stops it for 20 to 90 ms, every few seconds.
So the broker has a heap of 2 GiB of which half is young, and runs like those measured go before, until its compilers
are at rest or ten have been; and a topic holds some records before, since the fifth or so of a new one waits for 9 ms
and more in the broker. What is left of this is told with each run: jit_s, processor seconds of the compilers; gc_ms, in
how many milliseconds the broker stood still; steal_s, what the host took from this machine; and others_s, processor
seconds of what has nothing to do with it.

Where those are not next to nothing, `--first` puts the broker (but its compilers), the command and the reader before
all ordinary processes (SCHED_RR, wants CAP_SYS_NICE) in the runs that are measured: as on a machine on which nobody
else works.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT)]

import numpy as np  # noqa: E402 - run as a script, its folder is the path
from numpy.typing import NDArray  # noqa: E402

from benchmarks._table import Figure, show  # noqa: E402
from benchmarks.bench_archive import find_table, read_table  # noqa: E402
from benchmarks.bench_pacing import distance, recorded  # noqa: E402
from spanlite.pipeline.archive.write import ArchiveWriter  # noqa: E402
from tests.stack.kafka import Kafka  # noqa: E402

_SPANS = 4
_RATES = (500, 1_000)
_MODES = ("precise", "sleep")
_WARM_UPS, _AT_REST_S = 10, 0.3
_BEFORE = 64
_PAUSE = re.compile(r"Pause .* ([0-9.]+)ms$", re.MULTILINE)
_READER = """
import sys, time
import numpy as np
from confluent_kafka import Consumer, TopicPartition

bootstrap, topic, before, count, path = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "fetch.wait.max.ms": 500,
    "socket.nagle.disable": True,
})
consumer.assign([TopicPartition(topic, 0, 0)])


def read(many):
    at, end = [], time.monotonic() + 120
    while len(at) < many and time.monotonic() < end:
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            at.append(time.monotonic_ns())
    return at


read(int(before))
print("ready", flush=True)
np.save(path, np.array(read(int(count)), np.int64))
"""


def write(root: Path, due_ns: NDArray[np.int64]) -> None:
    """An archive of one small batch for each due time, handed on then."""
    source = read_table(find_table())[0]
    writer = ArchiveWriter(root)
    for number, at in enumerate(due_ns.tolist()):
        begin = number * _SPANS % (len(source.columns) - _SPANS)
        columns = source.columns.take(slice(begin, begin + _SPANS))
        first_row = source.first_row + number * _SPANS
        emit_ns = source.emit_ns + at
        writer.add(replace(source, sequence=number, first_row=first_row, emit_ns=emit_ns, columns=columns))
    writer.close()


@dataclass(frozen=True)
class Spent:
    """Seconds since each of them began.

    Attributes:
        compiling: processor time of the broker's compilers.
        paused: in which its collector let nothing run.
        machine, stolen: processor time of all that runs here, and what the host kept.
        own: processor time of the broker and of the processes of ours that have ended.
    """

    compiling: float
    paused: float
    machine: float
    stolen: float
    own: float


class Broker:
    """A broker whose JVM tells what it does beside its work."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "gc.log"
        java = ("-Xms2g", "-Xmn1g", f"-Xlog:gc:file={self._log}:uptime")
        self.kafka = Kafka(folder / "broker", heap="2g", java=java)

    def spent(self) -> Spent:
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        tasks = [(task / "stat").read_text() for task in Path(f"/proc/{self.kafka.pid}/task").iterdir()]
        threads = {number: _ticks(text) for number, text in enumerate(tasks)}
        compiling = sum(threads[number] for number, text in enumerate(tasks) if "CompilerThre" in text)
        user, nice, system, _, _, *interrupts, stolen = map(int, _first_line("/proc/stat").split()[1:9])
        children = os.times()
        return Spent(
            compiling=compiling * tick_s,
            paused=sum(map(float, _PAUSE.findall(self._log.read_text()))) / 1e3,
            machine=(user + nice + system + sum(interrupts)) * tick_s,
            stolen=stolen * tick_s,
            own=_ticks(Path(f"/proc/{self.kafka.pid}/stat").read_text()) * tick_s
            + children.children_user
            + children.children_system,
        )

    def come_first(self) -> None:
        """Puts the broker, but its compilers, and what this process starts before all ordinary processes.

        Raises:
            PermissionError: no CAP_SYS_NICE.
        """
        lowest = os.sched_param(os.sched_get_priority_min(os.SCHED_RR))
        for task in Path(f"/proc/{self.kafka.pid}/task").iterdir():
            if "CompilerThre" not in (task / "comm").read_text():
                os.sched_setscheduler(int(task.name), os.SCHED_RR, lowest)
        os.sched_setscheduler(0, os.SCHED_RR, lowest)


def _ticks(stat: str) -> int:
    """Processor time of a line of /proc/…/stat, in ticks."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _first_line(path: str) -> str:
    return Path(path).read_text().splitlines()[0]


def judged(broker: Broker, folder: Path, rate: int, mode: str, seconds: float, *, number: int = 0) -> dict[str, Figure]:
    """One run's figures."""
    due_ns = recorded(rate, seconds)
    kafka = broker.kafka
    archive, name = folder / f"{rate}", f"bench-{rate}-{mode}-{number}"
    if not archive.exists():
        write(archive, due_ns)
    seen, told = folder / f"{name}.npy", folder / f"{name}.json"
    words = ["replay", "run", archive, "--to", "kafka", "--bootstrap", kafka.bootstrap, "--run", name, "-q"]
    words += ["--create-topic", "--partitions", "1"]
    command = [sys.executable, "-m", "spanlite", *map(str, words)]
    # A first short run makes the topic, so that the reader is there before the records are.
    subprocess.run([*command, "--limit-batches", str(_BEFORE)], check=True)
    reading = [sys.executable, "-c", _READER, kafka.bootstrap, f"spanlite.replay.{name}", str(_BEFORE)]
    with subprocess.Popen([*reading, str(len(due_ns)), str(seen)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        begin_s, before = time.perf_counter(), broker.spent()
        subprocess.run(
            [*command, "--speed", "1", "--mode", mode, "--prime", "60s", "--manifest", str(told)], check=True
        )
        took_s = time.perf_counter() - begin_s
        reader.wait(120)
    after = broker.spent()
    at_ns = np.load(seen)
    assert len(at_ns) == len(due_ns), f"{len(at_ns)} of {len(due_ns)} records came"
    error_us = (at_ns - due_ns) / 1e3
    error_us -= error_us.min()
    p50, p99 = np.quantile(error_us, [0.5, 0.99])
    lateness = json.loads(told.read_text())["pacing"]["lateness_ns"]
    return {
        "mode": mode,
        "batches_per_s": rate,
        "p50_us": float(p50),
        "p99_us": float(p99),
        "max_us": float(error_us.max()),
        "ks": distance(np.diff(due_ns), np.diff(at_ns)),
        "length": float((at_ns[-1] - at_ns[0]) / (due_ns[-1] - due_ns[0])),
        "pacer_p99_us": lateness["p99"] / 1e3,
        "command_s": took_s,
        "jit_s": after.compiling - before.compiling,
        "gc_ms": (after.paused - before.paused) * 1e3,
        "steal_s": after.stolen - before.stolen,
        "others_s": (after.machine - before.machine) - (after.own - before.own),
    }


def warm_up(broker: Broker, folder: Path, seconds: float) -> None:
    """Runs as those that are measured, until the broker's compilers have next to nothing to do."""
    for number in itertools.count(1):
        row = judged(broker, folder, _RATES[-1], _MODES[number % 2], seconds, number=number)
        print(f"warm-up {number}: compilers {row['jit_s']:.1f} s, p99 {row['p99_us']:.0f} µs", file=sys.stderr)
        if number >= _WARM_UPS or float(row["jit_s"]) < _AT_REST_S:
            return


def main() -> None:
    """Both modes at both rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=10, help="length of each run")
    parser.add_argument("--first", action="store_true", help="before all ordinary processes, after the warm-up")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        broker = Broker(Path(name))
        with broker.kafka:
            warm_up(broker, Path(name), options.seconds)
            if options.first:
                broker.come_first()
            rows = [judged(broker, Path(name), rate, mode, options.seconds) for rate in _RATES for mode in _MODES]
    show("Arrival behind Kafka against due time", rows, options.json)


if __name__ == "__main__":
    main()
