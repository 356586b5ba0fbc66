"""The API in a program: what arrives at the agent, what is lost and told, and that nothing makes the program fail."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spanlite.agent import recorder as recording
from spanlite.agent.counts import AgentCounts
from spanlite.agent.observe import Observer
from spanlite.agent.recorder import MOST_BYTES, MOST_SERIES, SIZE, Recorder
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.contract import catalogue
from spanlite.contract.codec import decode_batch
from spanlite.contract.rows import span_rows
from spanlite.runtime.clock import SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer

Rows = Callable[[], list[dict[str, Any]]]


class Agent:
    """An agent on a socket; `rows` is what has come since the last call."""

    def __init__(self, path: Path) -> None:
        broker = MemoryBroker()
        self.counts = AgentCounts()
        self._consumer = MemoryConsumer(broker, SPANS_TOPIC)
        self.server = AgentServer(path, MemoryProducer(broker), SystemClock(), self.counts)
        self.server.start()

    def rows(self) -> list[dict[str, Any]]:
        batches = [decode_batch(record.value) for record in self._consumer.poll(1 << 20, 0)]
        return [row for batch in batches for row in span_rows(batch)]

    def dropped(self) -> dict[str, int]:
        return self.counts.by_label(catalogue.AGENT_OBSERVATIONS_DROPPED)


@contextmanager
def agent(path: Path) -> Iterator[Agent]:
    """Runs until the block ends; what was sent until then is worked off."""
    made = Agent(path)
    try:
        yield made
    finally:
        made.server.stop()


def observer(path: Path, **variables: str) -> Observer:
    """An API of its own."""
    return Observer(Recorder(variables=lambda: {"SPANLITE_SOCKET": str(path), **variables}))


def program(code: str, path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program that observes."""
    environment = {**os.environ, "SPANLITE_SOCKET": str(path), **variables}  # noqa: TID251  # the child's
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_is_observed_arrives(tmp_path: Path) -> None:
    """Each kind with its value, name, labels and place; a handle asked for again is the same."""
    path = tmp_path / "a.sock"
    with agent(path) as listening:
        made = observer(path)
        made.counter("tokens", layer=3).add(17)
        made.gauge("loss", device=1).set(-0.25)
        made.timing("rope_ms", sequence=7, layer=3).observe_ns(1500)
        made.timing("rope_ms", layer=3, sequence=7).observe(2e-6)
        with made.timing("block").time():
            pass
        assert made.counter("tokens", layer=3) is made.counter("tokens", layer=3)
        made.flush()
        made.recorder.close()
    *told, block = sorted(listening.rows(), key=lambda row: (row["name"] == "block", row["name"], row["duration_ns"]))
    assert [(r["kind"], r["name"], r["duration_ns"], r["bytes"], r.get("value")) for r in told] == [
        ("gauge", "loss", 0, 0, -0.25),
        ("timing", 'rope_ms{layer="3",sequence="7"}', 1500, 0, None),
        ("timing", 'rope_ms{layer="3",sequence="7"}', 2000, 0, None),
        ("counter", 'tokens{layer="3"}', 0, 17, None),
    ]
    assert (told[0]["place"]["device_id"], told[1]["place"]["device_id"]) == (1, 0)
    assert block["duration_ns"] > 0
    assert listening.dropped() == {}


def test_the_end_of_a_name_says_what_observe_means(tmp_path: Path) -> None:
    """Units of timings, counters, and gauges for the rest."""
    path = tmp_path / "a.sock"
    with agent(path) as listening:
        made = observer(path)
        for name in ("a_ms", "a_us", "a_ns", "a_s", "a_seconds"):
            made.observe(name, 3, layer=1)
        made.observe("b_count", 4)
        made.observe("b_total", 5)
        made.observe("c", 0.5)
        made.flush()
        made.recorder.close()
    assert {r["name"]: (r["kind"], r["duration_ns"] or r["bytes"] or r.get("value")) for r in listening.rows()} == {
        'a_ms{layer="1"}': ("timing", 3 * 10**6),
        'a_us{layer="1"}': ("timing", 3000),
        'a_ns{layer="1"}': ("timing", 3),
        'a_s{layer="1"}': ("timing", 3 * 10**9),
        'a_seconds{layer="1"}': ("timing", 3 * 10**9),
        "b_count": ("counter", 4),
        "b_total": ("counter", 5),
        "c": ("gauge", 0.5),
    }


class Hostile:
    """Has no text, no hash and no number."""

    __hash__ = None  # type: ignore[assignment]  # on purpose

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __float__(self) -> float:
        raise RuntimeError("no number")


def test_nothing_that_is_handed_in_raises(tmp_path: Path) -> None:
    """Names, labels and values of any type: they become fit or are dropped and counted."""
    path = tmp_path / "a.sock"
    with agent(path) as listening:
        made = observer(path)
        odd: list[Any] = [Hostile(), None, "x", [], b"\xff", "\ud800", "é" * 10_000, 1 << 70]
        for each in odd:
            made.counter("a").add(each)
            made.gauge("b").set(each)
            made.timing("c").observe_ns(each)
            made.timing("c").observe(each)
            made.observe("d_ms", each)
            made.observe(each, 1)
            made.counter(each).add(1)
            made.counter("e", label=each, **{"bad name\n": each}).add(1)
            made.gauge("f", device=each).set(1)
        made.counter("many", **{f"l{n}": n for n in range(50)}).add(1)
        made.flush()
        made.recorder.close()
    rows = listening.rows()
    assert {"a", "b", "c", "d_ms"} & {row["name"] for row in rows} == {"b"}  # 2^70 is a float
    assert listening.dropped().keys() == {"value"}
    assert listening.server.failures == []
    names = [row["name"] for row in rows if row["kernel"] == "many"]
    assert [name.count("=") for name in names] == [16]


def test_without_an_agent_it_is_counted_and_the_next_one_is_told(tmp_path: Path) -> None:
    """What nobody took, what did not fit, what was one series too many: STATS say how much of each."""
    path = tmp_path / "a.sock"
    made = observer(path)
    add = made.counter("a").add
    for _ in range(5):
        add(1)
    made.flush()
    for number in range(MOST_SERIES + 6):
        made.counter("many", number=number)
    made.counter("many", number="one more").add(1)
    made.recorder.buffer += bytes(MOST_BYTES - len(made.recorder.buffer))
    held = made.recorder.room
    assert held == MOST_BYTES
    for _ in range(3):
        add(1)
    made.flush()
    with agent(path) as listening:
        deadline = threading.Event()
        for _ in range(100):
            made.recorder._retry_ns = 0
            add(1)
            made.flush()
            if listening.counts.value(catalogue.AGENT_OBSERVATIONS_DROPPED):
                break
            deadline.wait(0.05)
        made.recorder.close()
    dropped = listening.dropped()
    assert dropped["series_cap"] == 1
    assert dropped["full"] <= 3
    assert dropped["no_agent"] >= 5 + MOST_BYTES // SIZE


def test_an_agent_that_goes_is_replaced_by_the_next(tmp_path: Path) -> None:
    """Names are told again on the new connection, which is a session of its own."""
    path = tmp_path / "a.sock"
    made = observer(path)
    seen: list[dict[str, Any]] = []
    for _ in range(2):
        with agent(path) as listening:
            made.recorder._retry_ns = 0
            made.counter("a", b="c").add(1)
            made.flush()
            listening.server._hang_up()
        seen += listening.rows()
    made.recorder.close()
    assert [row["name"] for row in seen] == ['a{b="c"}'] * 2
    assert len({row["span_id"] for row in seen}) == 2


def test_threads_lose_nothing(tmp_path: Path) -> None:
    """Four threads at once: every increment arrives or is counted."""
    path = tmp_path / "a.sock"
    with agent(path) as listening:
        made = observer(path)

        def work(number: int) -> None:
            for _ in range(5000):
                made.counter("a", thread=number).add(1)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made.flush()
        made.recorder.close()
    sums: Counter[str] = Counter()
    for row in listening.rows():
        sums[row["name"]] += row["bytes"]
    assert sums == {f'a{{thread="{number}"}}': 5000 for number in range(4)}


def test_a_program_that_ends_has_said_everything(tmp_path: Path) -> None:
    """Also one that ends right after its last observation, and in the child of a fork, by another session."""
    path = tmp_path / "a.sock"
    code = """
        import os
        from spanlite.agent import observe
        observe.counter("a").add(1)
        observe.flush()
        observe.counter("a").add(2)
        child = os.fork()
        if child == 0:
            observe.counter("a").add(40)
            observe.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        observe.counter("b").add(8)
    """
    with agent(path) as listening:
        done = program(code, path, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert (done.returncode, done.stderr) == (0, "")
    rows = listening.rows()
    assert sorted((row["name"], row["bytes"]) for row in rows) == [("a", 1), ("a", 2), ("a", 40), ("b", 8)]
    assert listening.dropped() == {}


@pytest.mark.parametrize("variables", [{"SPANLITE_DISABLE": "1"}, {}])
def test_a_program_without_an_agent_says_nothing(tmp_path: Path, variables: dict[str, str]) -> None:
    """Nobody listens, or nobody may: no output, no error, and with SPANLITE_DISABLE=1 no thread."""
    code = """
        import threading
        from spanlite.agent import observe
        for _ in range(1000):
            observe.observe("a_ms", 1.5, layer=3)
        print(threading.active_count())
    """
    with agent(tmp_path / "a.sock") as listening:
        done = program(code, tmp_path / ("a.sock" if variables else "nobody.sock"), **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == ("1" if variables else "2")
    assert listening.rows() == []


def test_a_full_buffer_drops_and_does_not_grow() -> None:
    """Without a sender nothing is taken off; what comes then is counted."""
    recorder = recording.Recorder(variables=lambda: {"SPANLITE_DISABLE": "1"})
    recorder._disabled, recorder._thread, recorder.room = False, threading.current_thread(), 3 * SIZE
    add = Observer(recorder).counter("a").add
    for _ in range(10):
        add(1)
    assert len(recorder.buffer) == 3 * SIZE
    assert recorder.full.take() == 7


def test_a_traced_program_needs_nothing_but_the_standard_library() -> None:
    """Importing the API brings in neither numpy nor protobuf, which the program may not have or have otherwise."""
    script = "import sys, spanlite.agent.observe, spanlite.agent.hooks; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"numpy", "google", "pyarrow", "zstandard", "torch", "cupti"} & set(done.stdout.split())
