"""The agent as a process against a real broker: kills, a broker that goes away or hangs, an end with Kafka down."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.agents import Agent, Topic, check, feed, feeder, until, without_faults
from tests.stack.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SPANS = 61_266
"""Of one playing of the recording."""
MOST_RSS_MIB = 300.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker of our own: it is killed and stalled."""
    with Kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def _empty(agent: Agent) -> None:
    until(lambda: agent.metrics()["spool_spans"] == 0, "an empty spool")


def test_an_agent_killed_at_random_points_loses_nothing_that_is_fed_again(broker: Kafka, tmp_path: Path) -> None:
    """SIGKILL five times while a run is fed, then fed in full: each batch is there, unaltered, and no other."""
    topic, repeat = Topic(broker.bootstrap), 12
    chance = random.Random(5)  # noqa: S311  # repeatable, not secret
    for _ in range(5):
        agent = Agent(tmp_path, broker.bootstrap)
        with feeder(agent, repeat) as process:
            until(lambda agent=agent: agent.metrics().get("spans_received_total", 0) > 0, "the first spans")  # type: ignore[misc]
            threading.Event().wait(chance.uniform(0, 0.8))
            agent.kill()
            process.wait(60)
    agent = Agent(tmp_path, broker.bootstrap)
    feed(agent, repeat)
    _empty(agent)
    assert agent.adds_up()
    assert agent.end()[0] == 0
    check(topic.read(), without_faults(tmp_path / "twin", repeat))


@pytest.mark.parametrize("fault", ["killed", "stalled"])
def test_a_broker_that_goes_away_costs_nothing(broker: Kafka, tmp_path: Path, fault: str) -> None:
    """Fed while it is away, until deliveries have failed: all arrives later, in order; memory stays bounded."""
    topic, repeat = Topic(broker.bootstrap), 30
    agent = Agent(tmp_path, broker.bootstrap)
    feed(agent, 1)
    _empty(agent)
    (broker.kill if fault == "killed" else broker.pause)()
    feed(agent, repeat)
    assert agent.metrics()["spool_spans"] == repeat * SPANS
    until(lambda: agent.metrics().get("send_failures_total", 0) > 0, "a failed delivery")
    assert agent.adds_up()
    (broker.start if fault == "killed" else broker.resume)()
    _empty(agent)
    assert agent.adds_up()
    assert agent.most_rss_mib() <= MOST_RSS_MIB
    assert agent.end()[0] == 0
    found = topic.read()
    check(found, without_faults(tmp_path / "twin", repeat))
    first: dict[bytes, list[int]] = {}
    for one in found:
        if one.sequence not in first.setdefault(one.producer, []):
            first[one.producer].append(one.sequence)
    assert all(before < after for numbers in first.values() for before, after in pairwise(numbers))


def test_an_end_with_kafka_down_leaves_all_on_disk_for_the_next_start(broker: Kafka, tmp_path: Path) -> None:
    """SIGTERM: it ends by itself with 0 and says what is left; the next agent delivers it."""
    topic, repeat = Topic(broker.bootstrap), 3
    broker.kill()
    agent = Agent(tmp_path, broker.bootstrap)
    feed(agent, repeat)
    code, said = agent.end()
    assert code == 0
    assert f"0 spans delivered, {repeat * SPANS} left in the spool; dropped: none" in said
    broker.start()
    agent = Agent(tmp_path, broker.bootstrap)
    assert agent.metrics()["spans_recovered_total"] == repeat * SPANS
    _empty(agent)
    assert agent.adds_up()
    assert agent.end()[0] == 0
    assert check(topic.read(), without_faults(tmp_path / "twin", repeat)) == 0


def test_a_second_agent_on_one_node_is_refused(broker: Kafka, tmp_path: Path) -> None:
    """On the same spool or the same socket, in one line that says so; the first goes on, and leaves no socket."""
    first = Agent(tmp_path, broker.bootstrap)
    command = [sys.executable, "-m", "spanlite", "agent", "--metrics-port", "0", "--bootstrap", broker.bootstrap]
    for socket, spool, said in (
        ("b.sock", "spool", f"the spool is in use by process {first.process.pid}"),
        ("agent.sock", "spool-b", f"another agent, process {first.process.pid}, serves this node"),
    ):
        words = ["--socket", str(tmp_path / socket), "--spool", str(tmp_path / spool)]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert said in line
    feed(first, 1)
    _empty(first)
    assert first.end()[0] == 0
    assert not first.socket.exists()
