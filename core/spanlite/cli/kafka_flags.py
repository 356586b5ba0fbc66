"""The flags of every command that talks to Kafka, and the settings that they make."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from spanlite.transport.kafka_settings import BOOTSTRAP, KafkaSettings, parse_property, read_properties

_NEXT = re.compile(r",(?=\s*[a-z][a-z0-9._]*\s*=)")
"""Between two properties in one text; commas inside a value, as in a list of ciphers, do not match."""


def add_kafka_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --bootstrap, -X/--property and --security-file.

    As a variable or in the settings file the properties are one text, with commas between them:
    SPANLITE_TOPICS_PROPERTY='security.protocol=SSL,ssl.ca.location=/etc/ca.pem'. A property given as a flag wins over
    the same one there, and both win over the file of --security-file.
    """
    group = parser.add_argument_group("Kafka")
    group.add_argument("--bootstrap", default=BOOTSTRAP, metavar="HOST:PORT[,…]", help="brokers (default %(default)s)")
    group.add_argument(
        "-X",
        "--property",
        action=_Append,
        metavar="NAME=VALUE",
        help="any property of librdkafka; may be given again",
    )
    group.add_argument(
        "--security-file",
        type=Path,
        metavar="FILE",
        help="file of NAME=VALUE lines: the place for passwords, which others can see on a command line",
    )


def kafka_settings(args: argparse.Namespace, *, client_id: str = "spanlite") -> KafkaSettings:
    """Settings from the flags of `add_kafka_arguments`.

    Raises:
        UsageError: the file cannot be read, or something in it or in a flag is no property.
    """
    given = args.property or []
    texts = _NEXT.split(given) if isinstance(given, str) else given  # text: from the environment or the file
    properties = read_properties(args.security_file) if args.security_file else {}
    properties.update(parse_property(text) for text in texts)
    return KafkaSettings(args.bootstrap, properties, properties.get("client.id", client_id))


class _Append(argparse.Action):
    """Appends to what the environment or the settings file gave as one text."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002  # argparse's signature
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,  # noqa: ARG002  # likewise
    ) -> None:
        before = getattr(namespace, self.dest) or []
        texts = _NEXT.split(before) if isinstance(before, str) else before
        setattr(namespace, self.dest, [*texts, str(values)])
