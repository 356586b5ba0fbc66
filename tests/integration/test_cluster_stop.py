"""A TaskManager that stands still for longer than a producer may be silent: nobody is taken for idle over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import load
from tests.stack.checker import newest_points, read_topic, work_of
from tests.stack.cluster import VENV, Cluster, pairs, wait_s
from tests.stack.flink import Flink
from tests.stack.kafka import Kafka
from tests.stack.strikes import Producing

pytestmark = [pytest.mark.flink, pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(900)]
_STOP_S = 9.0


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """A cluster that takes a TaskManager which stands still for alive: no ZooKeeper session ends, no heartbeat."""
    if not VENV.exists():
        pytest.skip("PyFlink is not installed: make flink-venv")
    settings = {"execution.checkpointing.interval": "2 s", "heartbeat.timeout": "60000"}
    with Flink(tmp_path_factory.mktemp("flink"), venv=VENV, slots=1, settings=settings) as cluster:
        yield cluster


def test_a_stop_longer_than_idle_makes_nothing_late(patient: Flink, kafka: Kafka, tmp_path: Path) -> None:
    """Timers that are due come before messages that wait: all producers would be taken for silent, their rest late."""
    cluster = Cluster(kafka, patient, tmp_path, "stop")
    job = cluster.submit("metrics", "--idle", "4s")
    sent = list(load.messages(3, 10))
    with Producing(kafka.bootstrap, cluster.topic("spans"), pairs(sent), few=3, pause_s=0.5) as producing:
        cluster.await_points(1)
        already = producing.sent
        patient.taskmanagers[0].pause()
        wait_s(_STOP_S)
        patient.taskmanagers[0].resume()
        assert producing.sent - already >= 6, "nothing has come while it stood still"
        assert producing.goes_on, "the load has ended before the stop"
    work = load.expected_work(sent)
    cluster.await_points(sum(each.count for each in work.values()))
    assert patient.rest.exceptions(job) == "", "it was restarted"
    patient.cancel(job)
    assert work_of(newest_points(kafka.bootstrap, cluster.topic("points"))) == work
    assert read_topic(kafka.bootstrap, cluster.topic("late")) == []
