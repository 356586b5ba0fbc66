"""How exactly a replay arrives behind a real Kafka: the command, a broker on loopback, a reader that notes the times.

    python benchmarks/bench_replay_kafka.py [--json FILE] [--seconds S]

An archive of small batches whose agents sent them at the starts of a recorded serving run's kernels, slowed down by an
exact ratio to 500 and 1,000 batches a second, is replayed by `spanlite replay run`. A second process reads the
topic and notes when it has each record. The archive is read before it starts (`--prime`): two cores are too few for
all four. Error is that time less the due time, against the latest start of the replay for which nothing is early, so
that it holds what pacer, client, broker and reader add to the fastest record. KS is the greatest distance between the
distributions of gaps asked for and seen. A run before the first warms the broker up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
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
_READER = """
import sys, time
import numpy as np
from confluent_kafka import Consumer, TopicPartition

bootstrap, topic, count, path = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "fetch.wait.max.ms": 500,
    "socket.nagle.disable": True,
})
consumer.assign([TopicPartition(topic, 0, 0)])
while consumer.poll(0.5) is None:
    pass
print("ready", flush=True)
at, end = [], time.monotonic() + 120
while len(at) < int(count) and time.monotonic() < end:
    message = consumer.poll(0.5)
    if message is not None and not message.error():
        at.append(time.monotonic_ns())
np.save(path, np.array(at, np.int64))
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


def judged(kafka: Kafka, folder: Path, rate: int, mode: str, seconds: float) -> dict[str, Figure]:
    """One run's figures."""
    due_ns = recorded(rate, seconds)
    folder.mkdir(exist_ok=True)
    archive, name = folder / f"{rate}", f"bench-{folder.name}-{rate}-{mode}"
    if not archive.exists():
        write(archive, due_ns)
    seen, told = folder / f"{name}.npy", folder / f"{name}.json"
    words = ["replay", "run", archive, "--to", "kafka", "--bootstrap", kafka.bootstrap, "--run", name, "-q"]
    words += ["--create-topic", "--partitions", "1"]
    command = [sys.executable, "-m", "spanlite", *map(str, words)]
    # A first short run makes the topic, so that the reader is there before the records are: it has one of its own.
    subprocess.run([*command, "--limit-batches", "1"], check=True)
    reading = [sys.executable, "-c", _READER, kafka.bootstrap, f"spanlite.replay.{name}"]
    with subprocess.Popen([*reading, str(len(due_ns)), str(seen)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        begin_s = time.perf_counter()
        subprocess.run(
            [*command, "--speed", "1", "--mode", mode, "--prime", "60s", "--manifest", str(told)], check=True
        )
        took_s = time.perf_counter() - begin_s
        reader.wait(120)
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
    }


def main() -> None:
    """Both modes at both rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=10, help="length of each run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Kafka(Path(name) / "broker") as kafka:
        judged(kafka, Path(name) / "warm", _RATES[-1], "sleep", options.seconds)
        rows = [judged(kafka, Path(name), rate, mode, options.seconds) for rate in _RATES for mode in _MODES]
    show("Arrival behind Kafka against due time", rows, options.json)


if __name__ == "__main__":
    main()
