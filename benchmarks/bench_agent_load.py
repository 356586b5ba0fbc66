"""The agent under the frames of eight GPUs: spans a second taken, losses by reason, memory; with the broker and away.

    SPANLITE_RECORDINGS=FOLDER python benchmarks/bench_agent_load.py [--json FILE]

Eight processes play a recording (serve-cupti130500) to one agent over its socket for 15 seconds, each as a GPU of its
own, in buffers of 8 MiB, CUPTI's usual size, or as the row says. Together they follow a schedule of 2 million spans a
second, whatever the agent does; one that the agent keeps waiting is late and goes on at once, so `taken` is either the
schedule or all that the agent takes. `late` is how far the last of them was behind its schedule in the end. The agent
is `spanlite agent` in a process of its own, the broker a real one on this machine, and on few cores all of them share
these: `cores` says who had how much. `away` is a broker that was killed before, with a spool of the default size, and
with one that fills.

Each row's books are balanced: what was offered was sent, dropped for a reason, or waits in the spool. `MiB max` is the
most memory that the agent's process ever had; it should stay below 300.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, replace
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / part) for part in ("proto", "core", "agent"))]

from prometheus_client.parser import text_string_to_metric_families  # noqa: E402 - the source roots come first

from benchmarks._process import process_cpu_s  # noqa: E402 - run as a script, its folder is the path
from benchmarks._table import Figure, json_path, show  # noqa: E402
from spanlite.agent.counts import AgentCounts  # noqa: E402
from spanlite.agent.feeder import hello  # noqa: E402
from spanlite.agent.frames import DONE, Clock, Frame, Header, pack_clock, pack_frame, pack_names, pack_text  # noqa: E402
from spanlite.agent.process import TracedProcess  # noqa: E402
from spanlite.agent.recording import Recording, chunks, read_recording  # noqa: E402
from spanlite.contract import catalogue  # noqa: E402
from spanlite.runtime.clock import ManualClock  # noqa: E402
from tests.faults.agents import Agent  # noqa: E402
from tests.stack.cluster import spanlite  # noqa: E402
from tests.stack.kafka import Kafka  # noqa: E402
from tests.stack.process import wait_until  # noqa: E402

_GPUS = 8
_SPANS_PER_S = 2_000_000
_LOAD_S = 15.0
_WAIT_S = 120.0


@dataclass(frozen=True)
class Offer:
    """What one process plays: a recording of so many spans, so many a second, in such buffers, to a socket."""

    recording: Path
    buffer_bytes: int
    spans: int
    per_s: float
    socket: Path


@dataclass(frozen=True)
class Played:
    """What it did: playings, when the agent had taken all, how late it was, the CPU time that it took."""

    turns: int
    end_s: float
    late_s: float
    cpu_s: float


def found() -> Path:
    """The recording: of the folder that the environment names, or the project's own."""
    named = Path(os.environ.get("SPANLITE_RECORDINGS", ""))
    folders = (named, named / "buffers", _ROOT / "tests" / "data" / "h200")
    files = next(sorted(one.glob("*.bin.xz")) for one in folders if list(one.glob("*.bin.xz")))
    return next((one for one in files if one.name.startswith("serve-cupti130500")), files[0])


def spans_of(recording: Recording) -> int:
    """Spans that an agent counts when it is played."""
    counts, said = AgentCounts(), pack_text(hello(recording, {}))
    traced = TracedProcess.from_hello(Header(Frame.HELLO, len(said), 0), said, 1, ManualClock(), counts)
    for sequence, piece in enumerate(chunks(recording, 8 << 20), 1):
        list(traced.take(Header(Frame.BUFFER, len(piece), sequence), bytes(piece)))
    list(traced.finish())
    return counts.value(catalogue.AGENT_SPANS_RECEIVED)


def play(number: int, offer: Offer, ready: Barrier, results: SimpleQueue[Played]) -> None:
    """One GPU's process: the recording again and again on its schedule, each time as another run of the program."""
    source = read_recording(offer.recording)
    source = replace(source, gpu={**source.gpu, "uuid": f"GPU-{number:08d}"})
    pieces = list(chunks(source, offer.buffer_bytes))
    frames = [pack_frame(Frame.BUFFER, piece, at) for at, piece in enumerate(pieces, 3)]
    frames.append(pack_frame(Frame.BYE, pack_text({"reason": "end of recording"}), len(frames) + 3))
    turns, turn_s = 0, offer.spans / offer.per_s
    ready.wait(_WAIT_S)
    begin = time.perf_counter()
    began_cpu = time.process_time()
    while time.perf_counter() - begin < _LOAD_S:
        before, after = (at + number * 10**9 + turns for at in source.unix_ns)
        run = replace(source, unix_ns=(before, after))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.connect(str(offer.socket))
            said = pack_text(hello(run, {"workload": run.scenario, "host.name": "recorded"}))
            peer.sendall(pack_frame(Frame.HELLO, said, 0))
            peer.sendall(pack_frame(Frame.CLOCK, pack_clock(Clock(run.cupti_ts, before, after - before)), 1))
            peer.sendall(pack_frame(Frame.NAMES, pack_names(run.names), 2))
            for at, frame in enumerate(frames):
                time.sleep(max(0.0, begin + (turns + (at + 1) / len(frames)) * turn_s - time.perf_counter()))
                peer.sendall(frame)
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(1) == DONE, "the agent hung up before it had taken everything"
        turns += 1
    end = time.perf_counter()
    results.put(Played(turns, end, max(0.0, end - begin - turns * turn_s), time.process_time() - began_cpu))


def all_play(offer: Offer) -> tuple[list[Played], float]:
    """Eight of them; what each did, and the seconds until the agent had taken everything."""
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(_GPUS + 1), context.SimpleQueue()
    processes = [
        context.Process(target=play, args=(number, offer, ready, results), daemon=True) for number in range(_GPUS)
    ]
    for process in processes:
        process.start()
    ready.wait(_WAIT_S)
    begin = time.perf_counter()
    for process in processes:
        process.join(_WAIT_S)
        assert process.exitcode == 0, "the agent has hung up, or takes too long"
    played: list[Played] = [results.get() for _ in processes]
    return played, max(one.end_s for one in played) - begin


def dropped(agent: Agent) -> dict[str, int]:
    """Spans that the agent has given up, by reason."""
    with urllib.request.urlopen(agent.url, timeout=10) as answer:  # noqa: S310 - the address of this machine
        families = text_string_to_metric_families(answer.read().decode())
    samples = [one for family in families for one in family.samples if one.name == catalogue.AGENT_SPANS_DROPPED.name]
    return {one.labels["reason"]: round(one.value) for one in samples if one.value}


def measure(kafka: Kafka, source: Path, *, away: bool = False, mib: int = 8, limit: str = "1GiB") -> dict[str, Figure]:
    """One agent under the load; buffers of so many MiB, a spool of such a limit."""
    folder = Path(tempfile.mkdtemp(dir=kafka.folder.parent))
    spans = spans_of(read_recording(source))
    agent = Agent(folder, kafka.bootstrap, "--spool-limit", limit)
    try:
        servers = [agent.process.pid] if away else [agent.process.pid, kafka.pid]
        before = [process_cpu_s(pid) for pid in servers]
        played, seconds = all_play(Offer(source, mib << 20, spans, _SPANS_PER_S / _GPUS, agent.socket))
        cores = [(process_cpu_s(pid) - began) / seconds for pid, began in zip(servers, before, strict=True)]
        disk = agent.metrics()["spool_bytes"]
        if not away:
            assert wait_until(lambda: agent.metrics()["spool_spans"] == 0, _WAIT_S), "the spool does not empty"
        now, lost = agent.metrics(), dropped(agent)
        sent, spooled = round(now.get("spans_sent_total", 0)), round(now["spool_spans"])
        offered = spans * sum(one.turns for one in played)
        assert offered == sent + sum(lost.values()) + spooled, (offered, sent, lost, spooled)
        memory = agent.most_rss_mib()
    finally:
        agent.kill()
    return {
        "broker": "away" if away else "there",
        "MiB a buffer": mib,
        "spool": limit,
        "spans offered": offered,
        "M spans/s taken": offered / seconds / 1e6,
        "late s": max(one.late_s for one in played),
        "sent": sent,
        "dropped": sum(lost.values()),
        "why": ", ".join(sorted(lost)) or "-",
        "spooled": spooled,
        "MiB on disk": disk / 2**20,
        "MiB max": memory,
        "agent's cores": cores[0],
        "feeders' cores": sum(one.cpu_s for one in played) / seconds,
        "broker's cores": 0.0 if away else cores[1],
    }


def main() -> None:
    """Measures with the broker there, and away."""
    path, source = json_path("the agent under the frames of eight GPUs"), found()
    with tempfile.TemporaryDirectory(prefix="spanlite-bench-") as name, Kafka(Path(name) / "kafka") as kafka:
        spanlite("topics", "create", "--bootstrap", kafka.bootstrap)
        rows = [measure(kafka, source), measure(kafka, source, mib=1)]
        kafka.kill()
        rows += [measure(kafka, source, away=True), measure(kafka, source, away=True, limit="4MiB")]
    show(f"agent: frames of {_GPUS} GPUs, {_SPANS_PER_S:,} spans/s asked, {os.cpu_count()} cores for all", rows, path)


if __name__ == "__main__":
    main()
