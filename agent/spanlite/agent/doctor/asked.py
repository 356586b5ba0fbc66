"""What the doctor is asked to look at beside the machine itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spanlite.transport.kafka_settings import KafkaSettings


@dataclass(frozen=True)
class Asked:
    """Each None is not looked at, but for the socket, which then is the collector's default.

    Attributes:
        pid: a program that runs.
        spool_limit: bytes that the agent may take there.
        prefix: first word of the topics' names.
        metrics: URL of the agent's own metrics.
        collector: the library, where it is not the one built here.
    """

    pid: int | None = None
    socket: Path | None = None
    spool: Path | None = None
    spool_limit: int = 1 << 30
    kafka: KafkaSettings | None = None
    prefix: str = "spanlite"
    metrics: str | None = None
    collector: Path | None = None
