"""What a Kafka client is told: address, name, and any property of librdkafka; secrets never leave it as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from spanlite.contract.errors import UsageError

BOOTSTRAP = "127.0.0.1:9092"
MASK = "***"
_SECRET = re.compile(r"password|secret|\.pem$|jaas|oauthbearer\.config|assertion")
_COMMON = {
    "socket.keepalive.enable": "true",
    # With all brokers lost librdkafka starts over from the bootstrap list, and with that from its shortest pause.
    # At the default 100 ms that is up to 20 connections a second for as long as a password is wrong.
    "reconnect.backoff.ms": "1000",
    "reconnect.backoff.max.ms": "10000",
    # A topic that a typing error or a first message made would have the broker's settings, not ours.
    "allow.auto.create.topics": "false",
    # Tells a client that is idle that the connection is back.
    "statistics.interval.ms": "5000",
}


@dataclass(frozen=True, slots=True, repr=False)
class KafkaSettings:
    """Settings of a client.

    Attributes:
        bootstrap: `host:port`, several with commas.
        properties: librdkafka's configuration properties; they win over everything that spanlite would set.
        client_id: how the broker's logs and quotas name the client.
    """

    bootstrap: str = BOOTSTRAP
    properties: Mapping[str, str] = field(default_factory=dict)
    client_id: str = "spanlite"

    def __repr__(self) -> str:
        shown = {name: MASK if is_secret(name) else value for name, value in self.properties.items()}
        return f"KafkaSettings(bootstrap={self.bootstrap!r}, properties={shown!r}, client_id={self.client_id!r})"

    def with_defaults(self, properties: Mapping[str, str]) -> KafkaSettings:
        """A copy that has these properties too, where it does not name them itself."""
        return replace(self, properties={**properties, **self.properties})

    def configuration(self, defaults: Mapping[str, str]) -> dict[str, str]:
        """All properties for librdkafka: spanlite's, then those of the kind of client, then the caller's."""
        named = {"bootstrap.servers": self.bootstrap, "client.id": self.client_id}
        return {**_COMMON, **defaults, **named, **self.properties}

    def clean(self, text: str) -> str:
        """The text on one line, with each secret value masked."""
        secrets = {value for name, value in self.properties.items() if value and is_secret(name)}
        quoted = {repr(secret)[1:-1] for secret in secrets}
        for secret in sorted(secrets | quoted, key=len, reverse=True):
            text = text.replace(secret, MASK)
        return " ".join(text.split())


def is_secret(name: str) -> bool:
    """Whether a property holds a password, a key or a token itself; a file's path is none."""
    return bool(_SECRET.search(name))


def parse_property(text: str) -> tuple[str, str]:
    """Name and value of `name=value`.

    Raises:
        UsageError: no name or no equals sign; the text is not repeated, it may be a password.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError("a Kafka property is written name=value, for example security.protocol=SASL_SSL")
    return name.strip(), value.strip()


def read_properties(path: Path) -> dict[str, str]:
    """Properties of a file of `name=value` lines; blank lines and those that begin with # say nothing.

    Raises:
        UsageError: the file cannot be read, or a line is no property (named by its number, not its content).
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a file of Kafka properties that can be read") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: no UTF-8 text; name a file of Kafka properties") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            name, value = parse_property(line)
        except UsageError as error:
            raise UsageError(f"{path}: line {number}: {error}") from error
        found[name] = value
    return found


def settings_error(settings: KafkaSettings, error: Exception) -> UsageError:
    """What to say when librdkafka refuses the settings themselves."""
    said = error.args[0] if error.args else error
    text = said.str() if hasattr(said, "str") else str(said)
    return UsageError(f"Kafka settings: {settings.clean(text)}; correct -X, --security-file or --bootstrap")
