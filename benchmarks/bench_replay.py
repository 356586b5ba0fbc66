"""Replay: archive to SpanBatch messages as fast as it goes, in spans/s on one core, and the memory that it takes.

The archive is a recorded serving run, several times over; batches are as large as an agent's. `all` is plan, reading
and encoding in one thread. A run to a file reads in a thread of its own; memory is that of the command, interpreter and
libraries included.

`--memory 100000000` measures that alone, on an archive of so many spans, beside one of a twentieth of them. `--small`
measures alone how many batches/s come of archives of batches of 64 and of 256 spans, plan, reading and encoding in one
thread.

SPANLITE_RECORDINGS names a folder with serve_steady.parquet, a kernel table; else a slice of it in tests/data serves.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.batch import Batch
from spanlite.contract.codec import encode_batch
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.replay.plan import make_plan
from spanlite.replay.prepare import Replay, Settings
from spanlite.replay.read import Reader
from spanlite.replay.running import run_replay
from spanlite.replay.selection import Selection
from spanlite.replay.sinks import FileSink
from spanlite.runtime.allocator import keep_freed
from spanlite.runtime.clock import SystemClock

sys.path[:0] = [str(Path(__file__).parents[1])]

from benchmarks.bench_archive import find_table, read_table  # noqa: E402 - the root comes first

LEAST_SPANS = 4_000_000
REPEATS = 3
SMALL_SPANS = (64, 256)
SMALL_BATCHES = 20_000


def write(root: Path, batches: list[Batch], least: int = LEAST_SPANS) -> int:
    """The recording again and again, one after the other, until there are enough; returns how many spans that is."""
    spans = sum(len(batch.columns) for batch in batches)
    first = min(int(batch.columns.start_ns.min()) for batch in batches)
    length_ns = max(int(batch.end_ns.max()) for batch in batches) - first + 1
    writer = ArchiveWriter(root)
    times = -(-least // spans)
    for number in range(times):
        for batch in batches:
            start_ns = batch.columns.start_ns + number * length_ns
            writer.add(
                replace(
                    batch,
                    sequence=batch.sequence + number * len(batches),
                    first_row=batch.first_row + number * spans,
                    emit_ns=batch.emit_ns + number * length_ns,
                    columns=replace(batch.columns, start_ns=start_ns),
                )
            )
    writer.close()
    return spans * times


def cut(batches: list[Batch], rows: int) -> list[Batch]:
    """The same spans in smaller batches, numbered on from 0."""
    made: list[Batch] = []
    for batch in batches:
        for begin in range(0, len(batch.columns), rows):
            columns = batch.columns.take(slice(begin, begin + rows))
            made.append(replace(batch, sequence=len(made), first_row=batch.first_row + begin, columns=columns))
    return made


def small(batches: list[Batch], folder: Path) -> dict[str, float]:
    """What archives of small batches come to."""
    figures: dict[str, float] = {}
    for rows in SMALL_SPANS:
        root, pieces = folder / f"{rows}", cut(batches, rows)[:SMALL_BATCHES]
        turns = -(-SMALL_BATCHES // len(pieces))
        write(root, pieces, turns * sum(len(piece.columns) for piece in pieces))
        files, count = ArchiveFiles(str(root)), turns * len(pieces)

        def run(files: ArchiveFiles = files, count: int = count) -> None:
            assert sum(1 for _ in Replay(files, Settings(), now_ns=0).ready()) == count

        figures[f"batches_of_{rows}_spans"] = count
        figures[f"batches_of_{rows}_spans_per_s"] = count / best_s(run)
    return figures


def best_s(work: Callable[[], object]) -> float:
    """Seconds of the best of some runs."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


_CHILD = """
import sys
from pathlib import Path
from spanlite.cli.main import main

code = main(sys.argv[1:])
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
sys.exit(code)
"""


def memory_mib(folder: Path) -> float:
    """Most memory of `spanlite replay run`, in MiB."""
    words = ["replay", "run", str(folder / "traces"), "--to", "file", "-o", str(folder / "again.spans"), "-q"]
    done = subprocess.run([sys.executable, "-c", _CHILD, *words], check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024


def measure(batches: list[Batch], folder: Path) -> dict[str, float]:
    """The figures by name."""
    spans = write(folder / "traces", batches)
    files, everything = ArchiveFiles(str(folder / "traces")), Selection()
    plan = make_plan(files, everything)
    size = sum(len(encode_batch(batch)) for batch in batches) / sum(len(batch.columns) for batch in batches)

    def read() -> None:
        assert sum(len(b.columns) for _, parts in Reader(files, plan, everything).batches() for b in parts) == spans

    def run(settings: Settings) -> None:
        replay = Replay(files, settings, now_ns=0)
        assert sum(ready.item.spans for ready in replay.ready()) == spans

    def to_file() -> None:
        replay = Replay(files, Settings(), now_ns=0)
        outcome = run_replay(replay, FileSink(folder / "out.spans", keep=False), SystemClock())
        assert outcome.account.spans == spans

    return {
        "spans": spans,
        "bytes_per_span": size,
        "plan_spans_per_s": spans / best_s(lambda: make_plan(files, everything)),
        "read_spans_per_s": spans / best_s(read),
        "encode_spans_per_s": len(batches[0].columns) / best_s(lambda: encode_batch(batches[0])),
        "all_spans_per_s": spans / best_s(lambda: run(Settings())),
        "all_remapped_and_moved_spans_per_s": spans / best_s(lambda: run(Settings(ids="remap", shift="offset=+2h"))),
        "to_file_spans_per_s": spans / best_s(to_file),
        "command_memory_mib": memory_mib(folder),
    }


def memory(batches: list[Batch], folder: Path, spans: int) -> dict[str, float]:
    """What the command takes for few spans and for many."""
    figures: dict[str, float] = {}
    for least in (spans // 20, spans):
        root = folder / f"{least}"
        root.mkdir()
        made = write(root / "traces", batches, least)
        begin = time.perf_counter()
        figures[f"memory_mib_{made}_spans"] = memory_mib(root)
        figures[f"seconds_{made}_spans"] = time.perf_counter() - begin
    return figures


def main() -> None:
    """Prints the figures; `--json FILE` writes them as well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--memory", type=int, metavar="SPANS", help="measure memory alone, of so many spans")
    parser.add_argument("--small", action="store_true", help="measure archives of small batches alone")
    args = parser.parse_args()
    keep_freed()
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    batches = read_table(find_table())
    with tempfile.TemporaryDirectory() as folder:
        if args.small:
            figures = small(batches, Path(folder))
        else:
            figures = memory(batches, Path(folder), args.memory) if args.memory else measure(batches, Path(folder))
    for name, value in figures.items():
        print(f"{name:<36}{value:>16,.2f}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
