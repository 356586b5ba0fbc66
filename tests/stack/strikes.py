"""What strikes a running cluster, and the load that goes on meanwhile."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from tests.stack import load
from tests.stack.cluster import wait_s
from tests.stack.flink import Flink
from tests.stack.kafka import Kafka
from tests.stack.process import wait_until

Pair = tuple[bytes, bytes]
"""Key and value of a message."""


def kill_taskmanager(flink: Flink, _kafka: Kafka) -> None:
    """SIGKILL; a new one takes its place."""
    flink.taskmanagers[-1].kill()
    flink.add_taskmanager()


def kill_jobmanager(flink: Flink, _kafka: Kafka) -> None:
    """SIGKILL; a new one finds the jobs."""
    flink.kill_jobmanager()
    flink.start_jobmanager()


def kill_broker(_flink: Flink, kafka: Kafka) -> None:
    """SIGKILL, and started again on its data."""
    kafka.kill()
    kafka.start()


def stall_broker(_flink: Flink, kafka: Kafka) -> None:
    """Its connections stay open and nobody answers for a while."""
    kafka.pause()
    wait_s(10)
    kafka.resume()


def delivered_again(pairs: Sequence[Pair], rng: random.Random) -> list[Pair]:
    """Each 1 to 3 times, and neighbours change places, as when two agents' retries overtake each other."""
    sent = [pair for pair in pairs for _ in range(rng.choice((1, 1, 2, 3)))]
    for at in range(0, len(sent), 6):
        part = sent[at : at + 6]
        rng.shuffle(part)
        sent[at : at + 6] = part
    return sent


def with_poison(sent: list[Pair], bad: Sequence[bytes], rng: random.Random) -> None:
    """Puts each bad value somewhere among what is sent."""
    for value in bad:
        sent.insert(rng.randrange(len(sent)), (b"poison", value))


class Producing:
    """Sends messages on a thread of its own, a few at a time with a pause after them, while the block runs.

    The block's end waits until all are sent, and raises what sending has raised.

    Attributes:
        sent: how many the broker has confirmed.
    """

    def __init__(
        self, bootstrap: str, topic: str, messages: Sequence[Pair], *, few: int = 4, pause_s: float = 1.2
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._messages = messages
        self._few = few
        self._pause_s = pause_s
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.sent = 0

    def __enter__(self) -> Producing:
        self._run = self._thread.submit(self._send)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        if error is None:
            self._run.result()

    @property
    def goes_on(self) -> bool:
        """Whether something is still to be sent."""
        return not self._run.done()

    def await_sent(self, count: int, timeout_s: float) -> None:
        """Returns when so many are sent; fails when it has ended, or takes too long."""
        wait_until(lambda: self.sent >= count or not self.goes_on, timeout_s)
        assert self.goes_on, "the load has ended before the fault"
        assert self.sent >= count, f"{self.sent} of {count} messages are sent after {timeout_s:g} s"

    def _send(self) -> None:
        for at in range(0, len(self._messages), self._few):
            few = self._messages[at : at + self._few]
            load.send(self._bootstrap, self._topic, few)
            self.sent += len(few)
            wait_s(self._pause_s)
