"""Settings of Kafka clients: where they come from, who wins, and what is never shown."""

from __future__ import annotations

import argparse
import logging
import threading
from pathlib import Path

import pytest

from spanlite.cli.kafka_flags import add_kafka_arguments, kafka_settings
from spanlite.contract.errors import UsageError
from spanlite.runtime.clock import ManualClock
from spanlite.runtime.settings import defaults
from spanlite.transport.kafka_connection import Connection
from spanlite.transport.kafka_settings import KafkaSettings, is_secret, read_properties

SECRETS = {"sasl.password": "hunter2", "ssl.key.password": "hunter2-more", "ssl.key.pem": "-----BEGIN KEY-----\nabc"}


def settings_of(*words: str, config: Path | None = None, environment: dict[str, str] | None = None) -> KafkaSettings:
    """What the flags make, with their defaults from a file and variables as the command sets them."""
    parser = argparse.ArgumentParser()
    add_kafka_arguments(parser)
    flags = {"bootstrap": False, "property": False, "security_file": False}
    parser.set_defaults(**defaults("topics", flags, config=config, environment=environment or {}, commands=["topics"]))
    return kafka_settings(parser.parse_args(words))


def test_secrets_are_in_no_text() -> None:
    """Neither repr nor cleaned texts show a password, a key or a token; paths and names stay readable."""
    settings = KafkaSettings("b:1", {**SECRETS, "ssl.key.location": "/etc/key.pem", "sasl.username": "agent"})
    for text in (repr(settings), settings.clean(f"failed with {list(SECRETS.values())}"), f"{settings}"):
        assert [value for value in ("hunter", "BEGIN KEY") if value in text] == []
    assert "/etc/key.pem" in repr(settings)
    assert "'sasl.username': 'agent'" in repr(settings)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("ssl.keystore.password", True),
        ("ssl.key.pem", True),
        ("sasl.oauthbearer.client.secret", True),
        ("sasl.oauthbearer.config", True),
        ("ssl.key.location", False),
        ("sasl.username", False),
        ("ssl.ca.location", False),
    ],
)
def test_which_properties_are_secret(name: str, secret: bool) -> None:
    """A new property that holds a secret must be known here before it is masked."""
    assert is_secret(name) is secret


def test_properties_win_over_defaults() -> None:
    """Whatever librdkafka knows passes through, even what spanlite sets itself."""
    settings = KafkaSettings("b:1", {"linger.ms": "7", "client.id": "mine"})
    configuration = settings.configuration({"linger.ms": "25", "acks": "all"})
    assert configuration["linger.ms"] == "7"
    assert configuration["acks"] == "all"
    assert configuration["bootstrap.servers"] == "b:1"
    assert configuration["client.id"] == "mine"
    assert settings.with_defaults({"linger.ms": "9", "x": "y"}).properties == {**settings.properties, "x": "y"}


def test_a_properties_file(tmp_path: Path) -> None:
    """Comments and blanks are passed over; a value may contain equals signs and blanks inside."""
    file = tmp_path / "kafka.properties"
    file.write_text("# login\n\n sasl.username = agent \nsasl.password=a=b c\n")
    assert read_properties(file) == {"sasl.username": "agent", "sasl.password": "a=b c"}


def test_errors_of_a_properties_file_name_the_place_and_not_the_content(tmp_path: Path) -> None:
    """A password on a broken line stays unsaid."""
    file = tmp_path / "kafka.properties"
    file.write_text("sasl.username=agent\nhunter2\n")
    with pytest.raises(UsageError, match=r"kafka\.properties: line 2") as caught:
        read_properties(file)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError, match="No such file"):
        read_properties(tmp_path / "none")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="no UTF-8"):
        read_properties(file)


def test_flags_win_over_variables_over_the_security_file(tmp_path: Path) -> None:
    """Property by property: one that is named in several places is taken from the nearest."""
    file = tmp_path / "kafka.properties"
    file.write_text("a.one=file\nb.two=file\nc.three=file\n")
    environment = {"SPANLITE_TOPICS_PROPERTY": "b.two=variable,c.three=variable", "SPANLITE_TOPICS_BOOTSTRAP": "b:1"}
    settings = settings_of("-X", "c.three=flag", "--security-file", str(file), environment=environment)
    assert settings.properties == {"a.one": "file", "b.two": "variable", "c.three": "flag"}
    assert settings.bootstrap == "b:1"


def test_several_properties_in_one_variable() -> None:
    """Commas part properties, but not the items of one value; a flag is one property, commas and all."""
    environment = {"SPANLITE_TOPICS_PROPERTY": "ssl.cipher.suites=AES,CHACHA, debug=broker,security"}
    assert settings_of(environment=environment).properties == {
        "ssl.cipher.suites": "AES,CHACHA",
        "debug": "broker,security",
    }
    assert settings_of("-X", "sasl.password=a,b=c").properties == {"sasl.password": "a,b=c"}


def test_properties_in_the_settings_file(tmp_path: Path) -> None:
    """A list and a text say the same; a flag adds to them."""
    file = tmp_path / "spanlite.toml"
    for text in ('["a.one=1", "b.two=2"]', '"a.one=1,b.two=2"'):
        file.write_text(f"[topics]\nproperty = {text}\n")
        assert settings_of("-X", "c.three=3", config=file).properties == {"a.one": "1", "b.two": "2", "c.three": "3"}


def test_a_flag_that_is_no_property_is_refused_unseen() -> None:
    """It may be a password that lost its name."""
    for word in ("hunter2", "=hunter2"):
        with pytest.raises(UsageError, match="name=value") as caught:
            settings_of("-X", word)
        assert "hunter2" not in str(caught.value)


def test_log_lines_of_one_kind_come_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka repeats itself: what is left out is counted, other kinds pass, no secret does."""
    clock = ManualClock()
    connection = Connection(KafkaSettings(properties=SECRETS), clock)
    for number in range(5):
        connection.log(logging.ERROR, "%s [%s] %s", "FAIL", "client", f"try {number} with hunter2")
    connection.log(logging.ERROR, "%s [%s] %s", "OTHER", "client", "words")
    clock.sleep_s(60)
    connection.log(logging.ERROR, "%s [%s] %s", "FAIL", "client", "again")
    assert [record.getMessage() for record in caplog.records] == [
        "FAIL [client] try 0 with ***",
        "OTHER [client] words",
        "FAIL [client] again (4 more of this kind before)",
    ]


def test_health_follows_errors_and_statistics() -> None:
    """Down with the last broker, its cause kept over the summary; up when a connection is."""
    connection = Connection(KafkaSettings(), ManualClock())
    connection.failed("_TRANSPORT", "one of three is away")
    assert connection.healthy
    connection.failed("_AUTHENTICATION", "wrong")
    connection.failed("_ALL_BROKERS_DOWN", "3/3 brokers are down")
    assert not connection.healthy
    assert connection.last_error == "authentication: wrong"
    assert connection.barred == "auth"
    connection.statistics('{"brokers": {"b:1": {"state": "CONNECT"}}}')
    assert not connection.healthy
    connection.statistics('{"brokers": {"b:1": {"state": "CONNECT"}, "b:2": {"state": "UP"}}}')
    assert connection.healthy
    assert connection.last_error == connection.barred == ""


@pytest.mark.parametrize("name", ["_SSL", "_TRANSPORT"])
def test_each_thread_is_told_why_a_certificate_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """librdkafka tells of one handshake in several threads, under either name: none may leave the reason out."""
    asked, answer = threading.Event(), threading.Event()

    def why(_settings: KafkaSettings, _text: str) -> str:
        asked.set()
        assert answer.wait(60)
        return "certificate has expired"

    monkeypatch.setattr("spanlite.transport.kafka_connection.why_refused", why)
    connection = Connection(KafkaSettings(), ManualClock())
    told = threading.Thread(target=connection.failed, args=(name, "ssl://b:1: certificate verify failed"))
    other = threading.Thread(target=connection.failed, args=(name, "ssl://b:1: certificate verify failed"))
    told.start()
    assert asked.wait(60)
    other.start()
    other.join(0.2)
    assert connection.last_error == "", "told before the reason was known"
    answer.set()
    for thread in (told, other):
        thread.join(60)
    assert connection.barred == "tls"
    assert "certificate has expired" in connection.last_error
