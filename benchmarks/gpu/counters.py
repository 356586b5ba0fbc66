"""The GPU's counters as the agent samples them: what is possible here, against Nsight Compute, and what it costs.

    make -C agent/native && make -C agent/native/counters
    python benchmarks/gpu/counters.py [--parts probe occupancy cost] [--json FILE] [--hz 1000] [--cupti LIBRARY]

`probe`: versions, permission, passes of the metrics, a second of an idle GPU, what a second client is told.
`occupancy`: kernels of fifteen occupancies (occupancy.cu, nvcc), each for a tenth of a second: achieved occupancy as
sampled from this process inside the host's times of each launch (`sampled`), as joined with the collector's spans
(`joined`), and as `ncu --clock-control none` has it; differences in points of percent. `cost`: replays a second of the
decoder's CUDA graph, one process, windows without and with sampling by turns. Each part is a process of its own, so
that one that fails or crashes leaves the others.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / folder) for folder in ("proto", "core", "agent"))]

from benchmarks._table import show  # noqa: E402 - run as a script, its folder is the path
from spanlite.agent.counters.joining import FATES, OWNED, join  # noqa: E402
from spanlite.agent.counters.library import CountersLibrary, Sampling, find_library  # noqa: E402
from spanlite.agent.counters.samples import METRICS, NEEDED, SM_ACTIVE, TENSOR, WARPS, Samples, no_samples  # noqa: E402
from spanlite.contract.errors import CountersError  # noqa: E402

_HARDWARE_BYTES = 128 << 20
_CAPACITY = 512
_DECODE_S = 0.05
_TRIM_NS = 2_000_000
"""Left out at both ends of a launch as the host saw it: it began a little later and ended a little earlier."""
_PART_LIMITS_S = {"probe": 30, "occupancy": 75, "cost": 55}
_TRIED = (
    "gr__cycles_active.avg",
    "sm__warps_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed.avg.per_cycle_active",
    "pcie__read_bytes.sum",
    "nvlrx__bytes.sum",
    "nvltx__bytes.sum",
)
_NCU = (WARPS, SM_ACTIVE, TENSOR, "dram__bytes_read.sum", "gpu__time_duration.sum")


def program(name: str, *places: str) -> str:
    """Where a program of CUDA is.

    Raises:
        FileNotFoundError: nowhere.
    """
    found = shutil.which(name)
    for place in places:
        found = found or next((str(path) for path in sorted(Path("/").glob(place), reverse=True)), None)
    if found is None:
        raise FileNotFoundError(f"{name} is neither on PATH nor at {', '.join(places)}")
    return found


def ran(words: Sequence[str], limit_s: float) -> str:
    """What a program prints; its errors are ours.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode:
        told = f"{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        raise RuntimeError(f"{' '.join(words[:4])} …: exit {done.returncode}\n{told}")
    return done.stdout


class Reader(threading.Thread):
    """Decodes 20 times a second until it is told to stop; any failure is raised by `stop`."""

    def __init__(self, sampling: Sampling, metrics: int) -> None:
        super().__init__(name="decode", daemon=True)
        self._sampling = sampling
        self._done = threading.Event()
        self.samples: list[Samples] = [no_samples(metrics)]
        self.costs: list[tuple[int, int, int, int]] = []
        self.ages_ms: list[float] = []
        self.overflows = self.full = self.unfinished = 0
        self.failure: Exception | None = None
        self.thread_s = 0.0

    def run(self) -> None:
        """Decodes."""
        begun = time.thread_time()
        try:
            while not self._done.wait(_DECODE_S):
                self._drain()
            self._drain()
        except CountersError as error:
            self.failure = error
        self.thread_s = time.thread_time() - begun

    def _drain(self) -> None:
        more = True
        while more:
            decoded = self._sampling.decode()
            more = decoded.more
            self.samples.append(decoded.samples)
            self.costs.append((len(decoded.samples), decoded.decode_ns, decoded.evaluate_ns, decoded.reset_ns))
            self.overflows += decoded.overflow
            self.full += decoded.more
            self.unfinished += decoded.unfinished
            if len(decoded.samples):
                self.ages_ms.append((time.time_ns() - int(decoded.samples.end_ns[-1])) / 1e6)

    def stop(self) -> Samples:
        """All samples, in order.

        Raises:
            CountersError: a decoding failed.
        """
        self._done.set()
        self.join()
        if self.failure:
            raise self.failure
        parts = self.samples
        return Samples(*(np.concatenate([getattr(part, name) for part in parts]) for name in Samples.__slots__))

    def told(self, samples: Samples, seconds: float) -> dict[str, Any]:
        """What decoding cost, and whether samples are missing."""
        costs = np.array(self.costs, dtype=np.float64).reshape(-1, 4)
        count = max(len(samples), 1)
        between = samples.start_ns[1:] - samples.end_ns[:-1]
        return {
            "samples": len(samples),
            "interval_us": float(np.median(samples.duration_ns)) / 1e3 if len(samples) else 0.0,
            "longest_us": float(samples.duration_ns.max()) / 1e3 if len(samples) else 0.0,
            "gaps": int((between > 0).sum()),
            "gaps_ms": float(between[between > 0].sum()) / 1e6,
            "backwards": int((between < 0).sum()),
            "newest_age_ms": statistics.median(self.ages_ms) if self.ages_ms else 0.0,
            "decode_us_a_call": float(costs[:, 1].mean()) / 1e3 if len(costs) else 0.0,
            "decode_us_most": float(costs[:, 1].max()) / 1e3 if len(costs) else 0.0,
            "evaluate_us_a_sample": float(costs[:, 2].sum()) / 1e3 / count,
            "reset_us_a_call": float(costs[:, 3].mean()) / 1e3 if len(costs) else 0.0,
            "core_percent": 100 * self.thread_s / seconds,
            "overflows": self.overflows,
            "image_full": self.full,
            "unfinished": self.unfinished,
        }


def _loaded(cupti: Path | None) -> CountersLibrary:
    """The library, with the libcupti that is named, the one that it finds, or one of Python's packages."""
    packages = [path for folder in sys.path for path in sorted(Path(folder).glob("nvidia/*/lib/libcupti.so.1[23]"))]
    for place in [cupti] if cupti else [None, *packages]:
        try:
            library = CountersLibrary(find_library(), place)
        except CountersError as error:  # noqa: PERF203 - few
            print(f"libcupti at {place or 'the usual places'}: {error}", flush=True)
        else:
            print(f"libcupti at {place or 'the usual places'}: {library.versions}", flush=True)
            return library
    raise RuntimeError("no libcupti that samples")


def _hold_context(device: int) -> None:
    """Makes a CUDA context in this process, should sampling need one; libcuda keeps it until the process ends."""
    cuda, handle, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    results = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(handle), device)]
    results += [cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), cuda.cuCtxSetCurrent(context)]
    print(f"a context of our own: {results}", flush=True)


class Bench:
    """What the parts share: the library, the metrics that fit, how to sample."""

    def __init__(self, words: argparse.Namespace) -> None:
        if not any((_ROOT / "agent/native/build").glob("libspanlite_counters.so")):
            subprocess.run(["make", "-s", "-C", str(_ROOT / "agent/native/counters")], check=True)
        self.words = words
        self.library = _loaded(words.cupti)
        self.metrics = self._fitting()

    def _fitting(self) -> tuple[str, ...]:
        chosen: tuple[str, ...] = ()
        for metric in METRICS:
            if self.passes(*chosen, metric) == "1":
                chosen = (*chosen, metric)
        return chosen

    def passes(self, *metrics: str) -> str:
        """How many passes metrics need together, or why none."""
        try:
            return str(self.library.passes(self.words.device, tuple(dict.fromkeys(metrics))))
        except CountersError as error:
            return str(error)

    def opened(self) -> Sampling:
        """By time, else by cycles of the system clock."""
        interval = round(1e9 / self.words.hz)
        try:
            return self._opened(interval, cycles=False)
        except CountersError as error:
            print(f"by time: {error}; by cycles then", flush=True)
        try:
            return self._opened(interval * 3 // 2, cycles=True)
        except CountersError as error:
            print(f"by cycles: {error}; with a context then", flush=True)
        _hold_context(self.words.device)
        return self._opened(interval, cycles=False)

    def _opened(self, interval: int, *, cycles: bool) -> Sampling:
        return self.library.open(
            self.words.device,
            self.metrics,
            interval=interval,
            cycles=cycles,
            hardware_bytes=_HARDWARE_BYTES,
            capacity=_CAPACITY,
        )

    @contextmanager
    def sampling(self) -> Iterator[Callable[[], tuple[Samples, dict[str, Any]]]]:
        """Samples while the context lasts; what it gives ends it early and tells."""
        sampling = self.opened()
        reader = Reader(sampling, len(self.metrics))
        begun = time.perf_counter()
        reader.start()

        def end() -> tuple[Samples, dict[str, Any]]:
            samples = reader.stop()
            return samples, reader.told(samples, time.perf_counter() - begun)

        try:
            yield end
        finally:
            reader._done.set()  # noqa: SLF001 - the same module
            reader.join()
            sampling.close()

    def value(self, samples: Samples, metric: str) -> Any:
        """A metric's column, or none."""
        return samples.values[:, self.metrics.index(metric)] if metric in self.metrics else np.zeros(len(samples))

    def means(self, samples: Samples) -> dict[str, float]:
        """Occupancy while SMs are active, SM activity and tensor activity, in percent, weighted by time."""
        active = self.value(samples, SM_ACTIVE) / 100 * samples.duration_ns
        total = float(active.sum())
        if not len(samples) or not total:
            return {"warps": float("nan"), "active": 0.0, "tensor": float("nan")}
        return {
            "warps": float((self.value(samples, WARPS) * active).sum()) / total,
            "active": 100 * total / float(samples.duration_ns.sum()),
            "tensor": float((self.value(samples, TENSOR) * active).sum()) / total,
        }


def timed(what: str, call: Callable[[], Any]) -> Any:
    """Calls, and tells how long it took."""
    begun = time.perf_counter()
    made = call()
    print(f"  {what}: {1e3 * (time.perf_counter() - begun):.1f} ms", flush=True)
    return made


def probe(bench: Bench) -> dict[str, Any]:
    """What is possible."""
    found: dict[str, Any] = {"versions": str(bench.library.versions)}
    print(found["versions"])
    for device in range(bench.library.versions.devices):
        about = bench.library.probe(device)
        found[f"device {device}"] = str(about)
        print(f"device {device}: {about}")
    parameters = Path("/proc/driver/nvidia/params")
    if parameters.is_file():
        lines = [line for line in parameters.read_text().splitlines() if "Admin" in line or "Profil" in line]
        print("driver:", "; ".join(lines))
    passes: dict[str, str] = {}
    for metric in (*METRICS, *_TRIED):
        passes[metric] = f"{bench.passes(metric)} alone, {bench.passes(*bench.metrics, metric)} with the chosen"
        print(f"  {metric}: {passes[metric]}")
    found["passes"] = passes
    found["chosen"] = bench.metrics
    print("chosen:", ", ".join(bench.metrics), flush=True)
    assert all(metric in bench.metrics for metric in NEEDED), "what is needed does not fit"
    sampling = timed("open", bench.opened)
    timed("close", sampling.close)
    with bench.sampling() as end:
        time.sleep(0.5)
        client = [sys.executable, __file__, "--part", "client", "--device", str(bench.words.device)]
        if bench.words.cupti:
            client += ["--cupti", str(bench.words.cupti)]
        done = subprocess.run(client, capture_output=True, text=True, timeout=40, check=False)
        found["second client"] = (done.stdout + done.stderr)[-1500:].strip()
        print(f"a second client, exit {done.returncode}: {found['second client']}")
        samples, told = end()
    found["idle"] = {**told, **bench.means(samples)}
    print("idle GPU:", json.dumps(found["idle"]))
    print("first samples:", [(int(a), int(b - a), v.tolist()) for a, b, v in _rows(samples, 3)])
    return found


def _rows(samples: Samples, count: int) -> Iterator[tuple[Any, Any, Any]]:
    yield from zip(samples.start_ns[:count], samples.end_ns[:count], samples.values[:count], strict=True)


def client(words: argparse.Namespace) -> None:
    """A second one, while another samples: what it is told."""
    library = _loaded(words.cupti)
    print("probe:", library.probe(words.device).why or "allowed", flush=True)
    try:
        library.open(words.device, NEEDED, interval=10**6, hardware_bytes=_HARDWARE_BYTES, capacity=256).close()
        print("open: allowed", flush=True)
    except CountersError as error:
        print(f"open: {error} [{error.result}]", flush=True)


def occupancy(bench: Bench) -> dict[str, Any]:
    """Ours against ncu's."""
    with tempfile.TemporaryDirectory() as folder:
        binary = str(Path(folder) / "occupancy")
        nvcc = program("nvcc", "usr/local/cuda/bin/nvcc", "usr/local/cuda-1*/bin/nvcc")
        words = [nvcc, "-O2", "-std=c++17", "-arch=native", "-o", binary, str(_HERE / "occupancy.cu")]
        timed("nvcc", lambda: ran(words, 60))
        plan = json.loads(timed("calibrate", lambda: ran([binary, "calibrate", str(bench.words.ms)], 30)))
        print("  ", [(one["name"], one["iterations"], one["ms"]) for one in plan], flush=True)
        run = [binary, "run", str(bench.words.times), *(str(one["iterations"]) for one in plan)]
        rows: list[dict[str, Any]] = [{"kernel": one["name"]} for one in plan]
        told: dict[str, Any] = {}
        for part in (by_brackets, by_spans, by_ncu):
            told[part.__name__] = timed(part.__name__, partial(_tried, part, bench, run, rows))
    for row in rows:
        for ours in ("sampled", "joined"):
            if ours in row and "ncu" in row:
                row[f"{ours} - ncu"] = row[ours] - row["ncu"]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    show("Achieved occupancy, percent", [{name: row.get(name, "") for name in columns} for row in rows])
    for ours in ("sampled - ncu", "joined - ncu"):
        differences = [abs(row[ours]) for row in rows if ours in row]
        if differences:
            print(f"{ours}: worst {max(differences):.3f} points, median {statistics.median(differences):.3f}")
    for name, what in told.items():
        print(f"{name}: {what}")
    return {"rows": rows, "told": told}


def _tried(part: Callable[..., dict[str, Any]], bench: Bench, run: Sequence[str], rows: list[dict[str, Any]]) -> Any:
    """What one way of measuring tells, or why it could not."""
    try:
        return part(bench, run, rows)
    except (CountersError, OSError, RuntimeError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return f"FAILED: {type(error).__name__}: {error}"


def by_brackets(bench: Bench, run: Sequence[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Samples inside the host's times of each launch."""
    with bench.sampling() as end:
        launches = [json.loads(line) for line in ran(run, 60).splitlines()]
        time.sleep(2 * _DECODE_S)
        samples, told = end()
    for number, row in enumerate(rows):
        inside = np.zeros(len(samples), dtype=np.bool_)
        for launch in launches:
            if launch["case"] == number:
                inside |= (samples.start_ns >= launch["begin"] + _TRIM_NS) & (
                    samples.end_ns <= launch["end"] - _TRIM_NS
                )
        means = bench.means(samples.take(inside))
        row |= {"sampled": means["warps"], "n": int(inside.sum()), "SMs": means["active"], "tensor": means["tensor"]}
    return told


def by_spans(bench: Bench, run: Sequence[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Samples joined with the spans that the collector took meanwhile."""
    from spanlite.agent.counts import AgentCounts
    from spanlite.agent.native import environment, find_collector
    from spanlite.agent.outlet import Item, Outlet
    from spanlite.agent.server import AgentServer
    from spanlite.contract.codec import decode_batch
    from spanlite.contract.columns import KERNEL
    from spanlite.runtime.clock import SystemClock

    starts: list[Any] = []
    ends: list[Any] = []

    class Kept(Outlet):
        def put(self, item: Item) -> None:
            columns = decode_batch(item.value).columns
            kernels = columns.kind == KERNEL
            starts.append(columns.start_ns[kernels])
            ends.append(columns.start_ns[kernels] + columns.duration_ns[kernels])
            self.count(item.spans, len(item.value), None)

    counts = AgentCounts()
    with tempfile.TemporaryDirectory() as folder, bench.sampling() as end:
        socket = Path(folder) / "agent.sock"
        server = AgentServer(socket, Kept(counts), SystemClock(), counts)
        server.start()
        more = {**environment(find_collector(), socket, {}), "SPANLITE_BUDGET": "full"}
        done = subprocess.run(run, env={**os.environ, **more}, capture_output=True, text=True, timeout=60, check=False)
        server.stop(10.0)
        samples, told = end()
    if done.returncode:
        raise RuntimeError(f"traced: exit {done.returncode}: {done.stderr[-1500:]}")
    start, past = np.concatenate(starts or [np.zeros(0)]), np.concatenate(ends or [np.zeros(0)])
    order = np.argsort(start)
    start, past = start[order].astype(np.int64), past[order].astype(np.int64)
    launches = [json.loads(line) for line in done.stdout.splitlines()]
    told = {**told, "spans": len(start), "launches": len(launches), "server failures": str(server.failures)}
    if len(start) != len(launches):
        raise RuntimeError(f"{len(start)} spans of {len(launches)} launches; {told}")
    late = [int(start[at]) - launch["begin"] for at, launch in enumerate(launches)]
    early = [launch["end"] - int(past[at]) for at, launch in enumerate(launches)]
    joined = join(samples, start, past)
    told["fates"] = {word: int((joined.fate == fate).sum()) for fate, word in enumerate(FATES)}
    told["host's bracket around the span, us"] = [min(late) / 1e3, max(late) / 1e3, min(early) / 1e3, max(early) / 1e3]
    case = np.array([launch["case"] for launch in launches])
    for number, row in enumerate(rows):
        mine = (joined.fate == OWNED) & (case[joined.owner] == number)
        row |= {"joined": bench.means(samples.take(mine))["warps"], "n joined": int(mine.sum())}
    return told


def by_ncu(bench: Bench, run: Sequence[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Nsight Compute on one launch of each."""
    ncu = program("ncu", "usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu", "usr/local/cuda-1*/bin/ncu")
    flags = ["--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    words = [ncu, *flags, "--metrics", ",".join(_NCU), run[0], "run", "1", *run[3:]]
    lines = ran(words, 45).splitlines()
    head = next((at for at, line in enumerate(lines) if '"Kernel Name"' in line), None)
    if head is None:
        raise RuntimeError(f"ncu printed no table: {lines[-10:]}")
    table = [row for row in csv.DictReader(lines[head:]) if row["ID"].strip().isdigit()]
    if len(table) != len(rows):
        raise RuntimeError(f"ncu measured {len(table)} launches of {len(rows)}: {lines[-5:]}")

    def number(row: dict[str, str], name: str) -> float:
        return float(row[name].replace(",", "")) if row.get(name, "").strip() else float("nan")

    for row, measured in zip(rows, table, strict=True):
        row |= {
            "ncu": number(measured, WARPS),
            "ncu SMs": number(measured, SM_ACTIVE),
            "ncu tensor": number(measured, TENSOR),
            "ncu ms": number(measured, "gpu__time_duration.sum") / 1e6,
        }
    return {"kernels": [measured["Kernel Name"] for measured in table], "device": bench.words.device}


def cost(bench: Bench) -> dict[str, Any]:
    """Windows of a load by turns."""
    words = [sys.executable, __file__, "--part", "load", "--load", bench.words.load]
    rates: dict[str, list[float]] = {"off": [], "on": []}
    clocks: dict[str, list[str]] = {"off": [], "on": []}
    tolds: list[dict[str, Any]] = []
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        orders, answers = load.stdin, load.stdout

        def window(way: str) -> None:
            orders.write(f"{bench.words.seconds}\n")
            orders.flush()
            time.sleep(bench.words.seconds / 2)
            clocks[way].append(_clocks(bench.words.device))
            line = answers.readline()
            if not line:
                raise RuntimeError("the load has ended; its last words are above")
            rates[way].append(float(line))

        try:
            if answers.readline().strip() != "ready":
                raise RuntimeError("the load did not start; its last words are above")
            window("off")
            rates["off"].clear()
            for turn in range(bench.words.rounds):
                for way in ("off", "on") if turn % 2 == 0 else ("on", "off"):
                    if way == "off":
                        window(way)
                        continue
                    with bench.sampling() as end:
                        window(way)
                        tolds.append(end()[1])
        finally:
            orders.close()
    ratios = [off / on for off, on in zip(rates["off"], rates["on"], strict=True)]
    row = {
        "load": bench.words.load,
        "hz": bench.words.hz,
        "off/s": statistics.median(rates["off"]),
        "on/s": statistics.median(rates["on"]),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }
    show("Replays a second, without and with sampling from another process", [row])
    print("SM MHz, memory MHz, W: off", clocks["off"], "on", clocks["on"])
    print("decoding:", json.dumps(tolds[-1]))
    return {"row": row, "rates": rates, "clocks": clocks, "decoding": tolds}


def _clocks(device: int) -> str:
    words = [
        "nvidia-smi",
        "-i",
        str(device),
        "--query-gpu=clocks.sm,clocks.mem,power.draw",
        "--format=csv,noheader,nounits",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip() or done.stderr.strip()


def load(words: argparse.Namespace) -> None:
    """The load's process: a window for each line that comes, its length; prints loops a second."""
    import torch

    from benchmarks.gpu.workloads import step

    loop = step(words.load)

    def window(seconds: float) -> float:
        torch.cuda.synchronize()
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            for _ in range(8):
                loop()
            torch.cuda.synchronize()
            done += 8
        return done / (time.perf_counter() - begun)

    window(0.5)
    print("ready", flush=True)
    for line in sys.stdin:
        print(window(float(line)), flush=True)


_PARTS = {"probe": probe, "occupancy": occupancy, "cost": cost}


def main(words: argparse.Namespace, given: Sequence[str]) -> int:
    """Each part in a process of its own; what failed is said, and the exit code."""
    found: dict[str, Any] = {}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for part in words.parts:
            print(f"== {part}", flush=True)
            result = Path(folder) / f"{part}.json"
            command = [sys.executable, "-X", "faulthandler", __file__, *given, "--part", part, "--result", str(result)]
            begun = time.perf_counter()
            try:
                code: int | str = subprocess.run(command, timeout=_PART_LIMITS_S[part], check=False).returncode
            except subprocess.TimeoutExpired as error:
                code = f"no end within {error.timeout} s"
            print(f"== {part}: {code or 'ok'}, {time.perf_counter() - begun:.1f} s", flush=True)
            if code:
                failed.append(part)
            found[part] = json.loads(result.read_text()) if result.is_file() else {"failed": code}
    if words.json:
        words.json.write_text(json.dumps(found, indent=1, default=str) + "\n")
    return len(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(_PARTS), choices=list(_PARTS))
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--hz", type=float, default=1000.0)
    parser.add_argument("--cupti", type=Path, metavar="LIBRARY", help="libcupti; searched where left out")
    parser.add_argument("--ms", type=float, default=100.0, help="of each kernel")
    parser.add_argument("--times", type=int, default=2, help="launches of each kernel")
    parser.add_argument("--load", default="graph")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--part", choices=[*_PARTS, "client", "load"], help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.part is None:
        sys.exit(main(words, sys.argv[1:]))
    elif words.part == "client":
        client(words)
    elif words.part == "load":
        load(words)
    else:
        done = _PARTS[words.part](Bench(words))
        if words.result:
            words.result.write_text(json.dumps(done, default=str))
