"""A broker with TLS, SCRAM and ACLs: who has the right things gets in; who has not is told why, without secrets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports these without saying so
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from spanlite.cli.main import main
from spanlite.contract.errors import TransportError
from spanlite.runtime.clock import SystemClock
from spanlite.transport.kafka import KafkaConsumer, KafkaProducer, KafkaSettings
from spanlite.transport.kafka_admin import KafkaAdmin
from tests.stack.kafka import Kafka
from tests.stack.process import free_port, wait_until
from tests.transport.values import WAIT_S, Told, new_topic, read_all, send

pytestmark = pytest.mark.kafka

PASSWORD = "correct-horse-battery"  # noqa: S105  # of a broker that lives as long as the test
WRONG = "wrong-horse-battery"
_ACLS = {
    "agent": [("topic", AclOperation.WRITE)],
    "view": [("topic", AclOperation.READ)],
    "job": [("topic", AclOperation.READ), ("group", AclOperation.READ)],
    "nobody": [],
}
"""Rights of each principal on its topic and group, as docs/kafka.md gives them; the right to describe is implied."""


@dataclass(frozen=True)
class Secured:
    """A broker with a listener for each way to get in, or not."""

    broker: Kafka
    folder: Path
    ports: dict[str, int]
    plain: str

    def settings(self, listener: str, properties: dict[str, str]) -> KafkaSettings:
        """Settings for a TLS listener that trust the right authority."""
        given = {"security.protocol": "SSL", "ssl.ca.location": str(self.folder / "ca.pem"), **properties}
        return KafkaSettings(f"localhost:{self.ports[listener]}", given)

    def login(self, user: str, password: str = PASSWORD) -> KafkaSettings:
        """SASL over TLS as one of the principals."""
        properties = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }
        return self.settings("SCRAM", properties)

    def topic(self) -> str:
        """A new topic with the rights of all principals."""
        name = new_topic(self.plain)
        kinds = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
        acls = [
            AclBinding(
                kinds[kind],
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for user, rights in _ACLS.items()
            for kind, operation in rights
        ]
        admin = AdminClient({"bootstrap.servers": self.plain})
        for done in admin.create_acls(acls).values():
            done.result(WAIT_S)
        return name


def _identity(cert: trustme.LeafCert, path: Path) -> Path:
    """Certificate and key in one file, as Kafka and librdkafka both read them."""
    key = load_pem_private_key(cert.private_key_pem.bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(text + b"".join(blob.bytes() for blob in cert.cert_chain_pems))
    return path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker: SCRAM over TLS, TLS with client certificates, and two whose certificates are no good."""
    folder = tmp_path_factory.mktemp("secured")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    trustme.CA().cert_pem.write_to_path(folder / "stranger.pem")
    _identity(authority.issue_cert("agent-7.example", common_name="agent-7"), folder / "client.pem")
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)
    good = _identity(authority.issue_cert("localhost", "127.0.0.1"), folder / "good.pem")
    expired = _identity(authority.issue_cert("localhost", not_after=yesterday), folder / "expired.pem")
    elsewhere = _identity(authority.issue_cert("elsewhere.example"), folder / "elsewhere.pem")
    ports = {name: free_port() for name in ("SCRAM", "MUTUAL", "EXPIRED", "ELSEWHERE")}
    listeners = [f"{name}://localhost:{port}" for name, port in ports.items()]
    properties = {
        "listeners": ",".join(["PLAINTEXT://127.0.0.1:{port}", "CONTROLLER://127.0.0.1:{controller_port}", *listeners]),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SCRAM:SASL_SSL,MUTUAL:SSL,EXPIRED:SSL,ELSEWHERE:SSL"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.keystore.type": "PEM",
        "listener.name.scram.ssl.keystore.location": str(good),
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.mutual.ssl.keystore.location": str(good),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=agent-7,.*$/agent/",
        "listener.name.expired.ssl.keystore.location": str(expired),
        "listener.name.elsewhere.ssl.keystore.location": str(elsewhere),
    }
    users = [word for user in _ACLS for word in ("--add-scram", f"SCRAM-SHA-512=[name={user},password={PASSWORD}]")]
    with Kafka(folder / "broker", properties=properties, format_arguments=users) as broker:
        yield Secured(broker, folder, ports, broker.bootstrap)


@pytest.fixture(autouse=True)
def no_secrets(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a test does, no password is in any line that it logs, however talkative."""
    caplog.set_level(logging.DEBUG)
    yield
    lines = [record.getMessage() for when in ("setup", "call") for record in caplog.get_records(when)]
    assert [line for line in lines if PASSWORD in line or WRONG in line or "PRIVATE KEY" in line] == []


def refused(settings: KafkaSettings, topic: str) -> tuple[str | None, str]:
    """What a producer tells of a value, and its error by then."""
    told = Told()
    hasty = settings.with_defaults({"message.timeout.ms": "4000"})
    with KafkaProducer(hasty) as producer:
        send(producer, topic, told, b"v")
        assert told.wait(1)
        assert not producer.healthy
        error = producer.last_error
    ((reason,),) = told.by_value.values()
    assert PASSWORD not in error
    assert WRONG not in error
    return reason, error


def test_scram_over_tls_with_the_documented_rights(secured: Secured) -> None:
    """Agent writes, job reads in a group, a view without one: no right is missing in the table of docs/kafka.md."""
    topic, told = secured.topic(), Told()
    with KafkaProducer(secured.login("agent").with_defaults({"debug": "security"})) as producer:
        send(producer, topic, told, b"v")
        assert producer.flush(WAIT_S) == 0
        assert producer.made_anew == 0
    assert told.by_value == {b"v": [None]}
    assert [record.value for record in read_all(secured.login("view"), topic)] == [b"v"]
    with KafkaConsumer(secured.login("job"), topic, topic) as consumer:
        assert [record.value for record in consumer.poll(10, WAIT_S)] == [b"v"]
        consumer.commit()


def test_client_certificates(secured: Secured) -> None:
    """With its certificate the agent gets in; without one it is told of TLS."""
    topic, told = secured.topic(), Told()
    client = str(secured.folder / "client.pem")
    properties = {"ssl.certificate.location": client, "ssl.key.location": client}
    with KafkaProducer(secured.settings("MUTUAL", properties)) as producer:
        send(producer, topic, told, b"v")
        assert producer.flush(WAIT_S) == 0
    assert told.by_value == {b"v": [None]}
    reason, error = refused(secured.settings("MUTUAL", {}), topic)
    assert reason == "tls"
    assert "alert" in error


def test_a_wrong_password_is_told_and_not_tried_in_a_loop(secured: Secured) -> None:
    """Values are told `auth`, connections are few, and the producer says it without the password."""
    topic, told, clock = secured.topic(), Told(), SystemClock()

    def failures() -> int:
        return secured.broker.log.read_text().count("Failed authentication")

    before, began_ns = failures(), clock.monotonic_ns()
    settings = secured.login("agent", WRONG).with_defaults({"message.timeout.ms": "8000", "debug": "security"})
    with KafkaProducer(settings) as producer:
        send(producer, topic, told, b"v")
        assert told.wait(1)
        seconds = (clock.monotonic_ns() - began_ns) / 1e9
        assert wait_until(lambda: failures() > before, WAIT_S)
        assert not producer.healthy
        assert "authentication" in producer.last_error.lower()
        assert WRONG not in producer.last_error
    assert told.by_value == {b"v": ["auth"]}
    assert (failures() - before) / seconds < 4


def test_a_wrong_password_ends_a_reader(secured: Secured) -> None:
    """Waiting would not help: the error says what to check."""
    for group in (None, "g"):
        with (
            KafkaConsumer(secured.login("job", WRONG), secured.topic(), group) as consumer,
            pytest.raises(TransportError, match=r"sasl\.username") as caught,
        ):
            consumer.poll(1, WAIT_S)
        assert WRONG not in str(caught.value)


def test_a_principal_without_rights_is_told_so(secured: Secured) -> None:
    """Logged in, but nothing allowed: `auth` for the writer, an error for readers, and no new client each moment."""
    topic, told = secured.topic(), Told()
    with KafkaProducer(secured.login("nobody").with_defaults({"message.timeout.ms": "5000"})) as producer:
        for number in range(5):
            send(producer, topic, told, b"%d" % number)
            assert told.wait(number + 1)
        assert producer.made_anew <= 5
    assert told.reasons() == {"auth"}
    assert told.once()
    for group in (None, topic):
        with (
            KafkaConsumer(secured.login("nobody"), topic, group) as consumer,
            pytest.raises(TransportError, match=r"(?i)authoriz.*ACLs"),
        ):
            consumer.poll(1, WAIT_S)


@pytest.mark.parametrize(
    ("listener", "said"), [("EXPIRED", "certificate has expired"), ("ELSEWHERE", "Hostname mismatch")]
)
def test_a_certificate_that_is_no_good_is_named(secured: Secured, listener: str, said: str) -> None:
    """Writers and readers say what is wrong with it, and nothing is sent."""
    settings = secured.settings(listener, {})
    topic = secured.topic()
    reason, error = refused(settings, topic)
    assert reason == "tls"
    assert said in error
    for group in (None, topic):
        with KafkaConsumer(settings, topic, group) as consumer, pytest.raises(TransportError, match=said):
            consumer.poll(1, WAIT_S)
    with pytest.raises(TransportError, match=said):
        KafkaAdmin(settings, timeout_s=5).found([topic])


def test_an_authority_that_nobody_knows_is_refused(secured: Secured) -> None:
    """A broker with another authority's certificate is not talked to."""
    stranger = str(secured.folder / "stranger.pem")
    settings = secured.login("agent")
    reason, error = refused(replace(settings, properties={**settings.properties, "ssl.ca.location": stranger}), "t")
    assert reason == "tls"
    assert "verify failed" in error


def test_the_command_takes_the_password_from_a_file(
    secured: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """--security-file logs in; a wrong one fails in one line without what is in it."""
    file = tmp_path / "kafka.properties"
    for password, code in ((PASSWORD, 0), (WRONG, 1)):
        lines = [f"{name} = {value}" for name, value in secured.login("agent", password).properties.items()]
        file.write_text("# agents\n\n" + "\n".join(lines) + "\n")
        bootstrap = f"localhost:{secured.ports['SCRAM']}"
        assert main(["topics", "ls", "--bootstrap", bootstrap, "--security-file", str(file)]) == code
    out, err = capfd.readouterr()
    assert "spanlite.spans" in out
    (line,) = err.splitlines()
    assert "sasl.username" in line
    assert WRONG not in out + err
