"""`spanlite topics` against a real broker."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from spanlite.cli.main import main
from spanlite.transport.kafka import KafkaSettings
from spanlite.transport.kafka_admin import KafkaAdmin
from spanlite.transport.topics import Difference, topics
from tests.stack.kafka import Kafka
from tests.stack.process import wait_until
from tests.transport.values import WAIT_S

pytestmark = pytest.mark.kafka


@pytest.fixture
def prefix() -> str:
    """Topics that no other test knows."""
    return f"test-{uuid.uuid4()}"


def shapes(admin: KafkaAdmin, prefix: str) -> dict[str, tuple[int, str]]:
    """Partitions and retention of each topic, by the last word of its name."""
    found = admin.found(topic.name for topic in topics(prefix=prefix))
    return {name.rpartition(".")[2]: (one.partitions, one.config["retention.ms"]) for name, one in found.items()}


def command(broker: Kafka, capsys: pytest.CaptureFixture[str], action: str, *words: str) -> tuple[int, list[Any]]:
    """Exit code, and what it printed as JSON."""
    code = main(["topics", action, "--bootstrap", broker.bootstrap, "--json", *words])
    out, err = capsys.readouterr()
    assert err == ""
    return code, json.loads(out)


def test_create_makes_all_topics_once(kafka: Kafka, prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing before, there with every setting afterwards, and nothing to do the second time."""
    code, told = command(kafka, capsys, "check", "--prefix", prefix)
    assert code == 1
    assert {one["state"] for one in told} == {"missing"}
    for state in ("created", "ok"):
        code, told = command(kafka, capsys, "create", "--prefix", prefix, "--partitions", "3")
        assert code == 0
        assert [one["state"] for one in told] == [state] * 5
    assert command(kafka, capsys, "check", "--prefix", prefix, "--partitions", "3")[0] == 0
    wanted = topics(prefix=prefix, partitions=3)
    found = KafkaAdmin(KafkaSettings(kafka.bootstrap)).found(topic.name for topic in wanted)
    for topic in wanted:
        assert found[topic.name].partitions == topic.partitions
        assert {name: found[topic.name].config[name] for name in topic.config} == topic.config


def test_what_differs_is_told_and_altered_when_asked(
    kafka: Kafka, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody has changed a topic: create leaves it and says so, --alter corrects it, partitions are never fewer."""
    assert command(kafka, capsys, "create", "--prefix", prefix)[0] == 0
    admin = KafkaAdmin(KafkaSettings(kafka.bootstrap))
    admin.alter(Difference(f"{prefix}.spans", "retention.ms", "", "1000"))
    admin.alter(Difference(f"{prefix}.late", "partitions", "", "9"))
    assert wait_until(lambda: (seen := shapes(admin, prefix))["spans"][1] == "1000" and seen["late"][0] == 9, WAIT_S)
    code, told = command(kafka, capsys, "create", "--prefix", prefix)
    assert code == 0
    assert {one["topic"]: one["state"] for one in told if one["state"] != "ok"} == {f"{prefix}.spans": "differs"}
    (difference,) = told[0]["differences"]
    assert (difference["setting"], difference["actual"], difference["wanted"]) == ("retention.ms", "1000", "604800000")
    assert command(kafka, capsys, "check", "--prefix", prefix)[0] == 1
    code, told = command(kafka, capsys, "create", "--prefix", prefix, "--alter", "--partitions", "6")
    assert code == 0
    assert {one["topic"].rpartition(".")[2]: (one["state"], one["partitions"]) for one in told} == {
        "spans": ("altered", 6),
        "points": ("differs", 4),
        "late": ("ok", 9),
        "dead": ("ok", 1),
        "alerts": ("ok", 1),
    }
    # A broker tells of a change a moment after the controller has made it.
    corrected = {"spans": (6, "604800000"), "late": (9, "604800000"), "points": (4, "604800000")}
    assert wait_until(lambda: shapes(admin, prefix).items() >= corrected.items(), WAIT_S)


def test_the_table_for_people(kafka: Kafka, prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a topic with its size and lifetime, and one for each difference with what to do."""
    assert main(["topics", "create", "--bootstrap", kafka.bootstrap, "--prefix", prefix]) == 0
    capsys.readouterr()
    assert main(["topics", "check", "--bootstrap", kafka.bootstrap, "--prefix", prefix, "--partitions", "8"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:6] == [f"{prefix}.spans", "differs", "4", "×", "1", "7"]
    assert lines[1] == "  partitions is 4, should be 8: `spanlite topics create --alter` corrects it"
    assert "newest per key" in lines[2]
    assert lines[3].startswith("  partitions is 4, should be 8: keys would move")


def test_too_many_copies_are_an_error_with_a_remedy(
    kafka: Kafka, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One broker cannot keep three copies."""
    words = ["topics", "create", "--bootstrap", kafka.bootstrap, "--prefix", prefix, "--replication", "3"]
    assert main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{prefix}.spans" in line
    assert "--replication" in line


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ls", "--bootstrap", "127.0.0.1:1", "-X", "socket.connection.setup.timeout.ms=1000"), 1, "check --bootstrap"),
        (("ls", "--alter"), 2, "belongs to `spanlite topics create`"),
        (("ls", "-X", "no.such.property=1"), 2, "no.such.property"),
        (("create", "--partitions", "0"), 2, "must be 1 or more"),
    ],
)
def test_errors_are_one_line_with_a_remedy(
    words: tuple[str, ...], code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """No traceback and no lines of librdkafka's on stderr."""
    assert main(["topics", *words]) == code
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line
