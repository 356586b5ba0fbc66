"""An open-loop replay to a service: how exactly requests leave and arrive, and what a stall does to the latency told.

    python benchmarks/bench_http.py [--json FILE] [--requests N] [--rates R,…] [--no-stalls]

An archive of N traces that start as a recorded serving run's kernels did, sent by `spanlite replay run --to http` at a
mean of R (1,000 and 2,000) requests a second to a server process on loopback that (a) answers at once, (b) takes
requests and answers none for 500 ms of every 2 s. Both processes share the machine's processors.

`handed` is from due to the pacer's handing over, `written` from due to written on the connection, `ks` the greatest
distance between the distributions of gaps asked for and seen by the server. `open` is the latency from due, as the
replay tells it. `closed` is what a client reports that waits for each answer before it sends the next request and
measures from its own sending: same traces, same times asked, the first half of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT)]

import numpy as np  # noqa: E402 - run as a script, its folder is the path
import pyarrow.parquet as pq  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from benchmarks._table import Figure, show  # noqa: E402
from benchmarks.bench_pacing import distance  # noqa: E402
from spanlite.contract.batch import Batch, Gpu  # noqa: E402
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, make_columns  # noqa: E402
from spanlite.pipeline.archive.write import ArchiveWriter  # noqa: E402

_RECORDING = _ROOT / "tests/data/serve_slice.parquet"
_RATES = "1000,2000"
_STALL_S, _EVERY_S = 0.5, 2.0
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_ASK = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"

Int64 = NDArray[np.int64]


class Server(asyncio.Protocol):
    """Notes when each request has arrived whole, and answers it, after a stall if there is one."""

    arrivals: list[int] = []  # noqa: RUF012 - of all connections
    stalls = False
    begin_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if len(rest) < length:
            return
        self._data = rest[length:]
        loop = asyncio.get_running_loop()
        if not self.arrivals:
            Server.begin_s = loop.time()
        self.arrivals.append(time.monotonic_ns())
        into_s = (loop.time() - self.begin_s) % _EVERY_S
        if self.stalls and into_s >= _EVERY_S - _STALL_S:
            loop.call_later(_EVERY_S - into_s, self._answer)
        else:
            self._answer()

    def _answer(self) -> None:
        self._transport.write(_ANSWER)  # type: ignore[attr-defined]  # a transport of a stream


async def serve(path: Path) -> None:
    """Serves until SIGTERM, then writes the arrivals."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    server = await loop.create_server(Server, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await over.wait()
    np.save(path, np.array(Server.arrivals, np.int64))


@contextlib.contextmanager
def served(path: Path, *, stalls: bool) -> Iterator[int]:
    """The port of a server process."""
    command = [sys.executable, __file__, "--serve", str(path), *(["--stalls"] if stalls else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def archived(folder: Path, count: int) -> Int64:
    """Writes an archive of traces of one kernel each; when they start."""
    starts: Int64 = np.sort(pq.read_table(_RECORDING, columns=["start_ns"])["start_ns"].to_numpy())[:count]
    traces = np.zeros(count, TRACE)
    traces["id"] = np.frombuffer(np.random.default_rng(7).bytes(16 * count), "V16")
    traces["start_ns"] = starts
    places = np.zeros(1, PLACE)
    places["gpu"] = 1
    configs = np.zeros(1, CONFIG)
    configs["kernel"] = configs["name"] = 1
    tables = (("", "kernel"), configs, places, np.zeros(1, NODE), traces)
    columns = make_columns(
        starts,
        np.full(count, 1000, np.int64),
        tables=tables,
        kind=np.full(count, 1, np.uint8),
        trace=np.arange(count, dtype=np.int32),
    )
    batch = Batch(
        producer=bytes(range(16)),
        sequence=1,
        session=1,
        first_row=0,
        emit_ns=int(starts[-1]),
        columns=columns,
        resource={"host.name": "node-1"},
        gpus=(Gpu("GPU-8f0d2c6e-1f5c-0b7a-6a77-4f3f0f6b1a52", 0, "NVIDIA H200", 9, 0, 132),),
    )
    writer = ArchiveWriter(folder)
    writer.add(batch)
    writer.close()
    return starts


def opened(archive: Path, folder: Path, speed: str, *, stalls: bool) -> tuple[dict[str, Any], Any, Int64]:
    """One replay: its manifest, its rows, the server's arrivals."""
    results, manifest, seen = folder / "r.parquet", folder / "m.json", folder / "seen.npy"
    with served(seen, stalls=stalls) as port:
        words = ["replay", "run", str(archive), "--to", "http", "--url", f"http://127.0.0.1:{port}/", "--speed", speed]
        words += ["--connections", "900", "--results", str(results), "--manifest", str(manifest), "-q"]
        subprocess.run([sys.executable, "-m", "spanlite", *words], check=True)
    return json.loads(manifest.read_text()), pq.read_table(results), np.load(seen)


def closed(folder: Path, due_ns: Int64, *, stalls: bool) -> Int64:
    """Latencies that a client tells which waits for each answer and measures from its sending."""
    took: list[int] = []
    with served(folder / "seen.npy", stalls=stalls) as port, socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin_ns = time.monotonic_ns() + 5_000_000
        for due in due_ns.tolist():
            time.sleep(max(begin_ns + due - time.monotonic_ns(), 0) / 1e9)
            sent_ns = time.monotonic_ns()
            stream.sendall(_ASK)
            got = b""
            while len(got) < len(_ANSWER):
                got += stream.recv(4096)
            took.append(time.monotonic_ns() - sent_ns)
    return np.array(took, np.int64)


def gaps(times_ns: Int64) -> Int64:
    """Between one and the next."""
    ordered: Int64 = np.sort(times_ns)
    return ordered[1:] - ordered[:-1]


def judged(archive: Path, starts: Int64, folder: Path, rate: int, *, stalls: bool) -> dict[str, Figure]:
    """One rate's figures."""
    length_ns = int(starts[-1] - starts[0])
    speed = f"{length_ns * rate / ((len(starts) - 1) * 1e9):.9f}"
    manifest, table, seen = opened(archive, folder, speed, stalls=stalls)
    due, sent, done = (table[name].to_numpy() for name in ("due_ns", "sent_ns", "done_ns"))
    assert len(due) == len(seen) == len(starts), manifest["outcome"]
    handed = manifest["pacing"]["lateness_ns"]
    written = np.quantile(sent - due, [0.5, 0.99, 1]) / 1e3
    latency = np.quantile(done - due, [0.5, 0.99]) / 1e6
    row: dict[str, Figure] = {
        "requests_per_s": rate,
        "server": "stalls" if stalls else "at once",
        "achieved_per_s": float((len(sent) - 1) / ((sent.max() - sent.min()) / 1e9)),
        "asked_per_s": float((len(due) - 1) / ((due.max() - due.min()) / 1e9)),
        "handed_p50_us": handed["p50"] / 1e3,
        "handed_p99_us": handed["p99"] / 1e3,
        "handed_max_us": handed["max"] / 1e3,
        "written_p50_us": float(written[0]),
        "written_p99_us": float(written[1]),
        "written_max_us": float(written[2]),
        "ks": distance(gaps(due), gaps(seen)),
        "open_p50_ms": float(latency[0]),
        "open_p99_ms": float(latency[1]),
        "closed_p50_ms": "",
        "closed_p99_ms": "",
    }
    if stalls:
        half = np.sort(due)[: len(due) // 2]
        took = np.quantile(closed(folder, half - half[0], stalls=True), [0.5, 0.99]) / 1e6
        row |= {"closed_p50_ms": float(took[0]), "closed_p99_ms": float(took[1])}
    return row


def main() -> None:
    """All rates to both servers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--requests", type=int, default=10_000, metavar="N", help="of each run (default %(default)s)")
    parser.add_argument("--rates", default=_RATES, metavar="R,…", help="requests a second (default %(default)s)")
    parser.add_argument("--no-stalls", action="store_true", help="only to the server that answers at once")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stalls", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        Server.stalls = options.stalls
        asyncio.run(serve(options.serve))
        return
    with tempfile.TemporaryDirectory(prefix="spanlite-bench-") as name:
        folder = Path(name)
        starts = archived(folder / "traces", options.requests)
        rows = [
            judged(folder / "traces", starts, folder, rate, stalls=stalls)
            for rate in map(int, options.rates.split(","))
            for stalls in ((False,) if options.no_stalls else (False, True))
        ]
    title = f"{options.requests:,} requests to a service, open loop; due times of a recorded serving run"
    show(title, rows, options.json)


if __name__ == "__main__":
    main()
