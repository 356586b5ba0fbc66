"""What an observation of a custom metric costs the program that makes it: processor time of one call, by kind.

    python benchmarks/bench_observe.py [--json FILE]

Each call is timed in loops of 20,000, into a buffer that has room, with nobody listening: what the sender's thread does
every 200 ms is told apart, as time a record. The loop itself is measured with an empty function and taken off. Of some
rounds the least counts, since others use the machine. `looked_up` finds its handle by name and labels each time.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from tempfile import TemporaryDirectory

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from benchmarks._table import Figure, json_path, show  # noqa: E402 - run as a script, its folder is the path
from spanlite.agent.observe import Observer  # noqa: E402
from spanlite.agent.recorder import SIZE, Recorder  # noqa: E402

_CALLS, _ROUNDS = 20_000, 25


class _Idle(Recorder):
    """Has room, and no sender: what is in the buffer is looked at and thrown away between the rounds."""

    def make_room(self) -> bool:
        self.room = 2 * _CALLS * SIZE
        return len(self.buffer) < self.room


def ns_per_call(call: Callable[[], None], recorder: Recorder | None = None) -> float:
    """Thread's processor time of a call, loop included."""
    least = float("inf")
    for _ in range(_ROUNDS):
        if recorder is not None:
            del recorder.buffer[:]
        begin = time.thread_time_ns()
        for _ in range(_CALLS):
            call()
        least = min(least, (time.thread_time_ns() - begin) / _CALLS)
        assert recorder is None or len(recorder.buffer) == _CALLS * SIZE, "observations are missing"
    return least


def sending() -> float:
    """Processor time of the sender for a record, a reader at the other end included in nothing."""
    with TemporaryDirectory() as folder, socket(AF_UNIX, SOCK_STREAM) as listener:
        path = f"{folder}/agent.sock"
        listener.bind(path)
        listener.listen()

        def read() -> None:
            peer, _ = listener.accept()
            with peer:
                while peer.recv(1 << 20):
                    pass

        reader = threading.Thread(target=read)
        reader.start()
        recorder = Recorder(variables=lambda: {"SPANLITE_SOCKET": path})
        spent: list[int] = []
        recorder.before_sending.append(lambda: spent.append(time.thread_time_ns()))
        add = Observer(recorder).counter("a", layer=3).add
        for _ in range(10):
            for _ in range(_CALLS):
                add(1)
            recorder.flush(10)
        recorder.close()
        reader.join()
        return (spent[-1] - spent[0]) / (10 * _CALLS)


def main() -> None:
    """Measures, prints the table and, if asked, writes the figures."""
    path = json_path((__doc__ or "").splitlines()[0])
    recorder = _Idle()
    observer = Observer(recorder)
    counter, gauge = observer.counter("a", layer=3), observer.gauge("b", layer=3)
    timing = observer.timing("c_ms", layer=3)

    def time_block() -> None:
        with timing.time():
            pass

    empty = ns_per_call(lambda: None)
    calls: dict[str, Callable[[], None]] = {
        "counter.add": lambda: counter.add(1),
        "gauge.set": lambda: gauge.set(1.5),
        "timing.observe_ns": lambda: timing.observe_ns(1234),
        "timing.observe": lambda: timing.observe(0.0012),
        "with timing.time()": time_block,
        "looked_up counter": lambda: observer.counter("a", layer=3).add(1),
        'observe("c_ms", …)': lambda: observer.observe("c_ms", 1.5, layer=3),
    }
    rows: list[dict[str, Figure]] = [
        {"call": name, "ns_per_call": ns_per_call(call, recorder) - empty} for name, call in calls.items()
    ]
    rows.append({"call": "sender, per record", "ns_per_call": sending()})
    show("An observation, processor time", rows, path)


if __name__ == "__main__":
    main()
