"""A recorded world for the doctor: files below a folder, and the answers of everything that is no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, Level
from spanlite.agent.doctor.probe import Broker, Files, Outside, Probe
from spanlite.runtime.clock import ManualClock
from spanlite.transport.kafka_settings import KafkaSettings

Check = Callable[[Probe, Asked], Iterator[Finding]]
NOT_THERE = {"error": "cannot open shared object file: No such file or directory"}
H200 = "GPU-5ab9a01a-6b3e-7b4e-9d5c-0123456789ab"
MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\nGCC version: 12\n"
NODES = {f"/dev/{name}": "" for name in ("nvidia0", "nvidiactl", "nvidia-uvm")}
CUDA_13_0 = {"file": "/lib/libcuda.so.580", "version": 13000, "init": 0, "devices": 1}


def told(version: int, file: str = "/lib/libcupti.so.13", **more: Any) -> dict[str, Any]:
    """What loading a libcupti answers."""
    return {"file": file, "lacking": [], "result": 0, "version": version, **more}


@dataclass(frozen=True)
class Recorded(Outside):
    """Answers by question.

    Attributes:
        libraries: (question, library) to the answer; any other library is not there.
        hosts: who answers at `host:port`.
        pages: bodies by URL.
        kafka: the broker, or what asking it raises.
        closed: files that this user may not open.
    """

    libraries: Mapping[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    pages: Mapping[str, str] = field(default_factory=dict)
    kafka: Broker | Exception | None = None
    closed: Sequence[Path] = ()
    free: int = 1 << 40

    def load(self, what: str, library: str, environment: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG002  # the real one's signature
        return self.libraries.get((what, library), NOT_THERE)

    def reach(self, host: str, port: int) -> str:
        if f"{host}:{port}" not in self.hosts:
            raise ConnectionRefusedError(111, "Connection refused")
        return self.hosts[f"{host}:{port}"]

    def fetch(self, url: str) -> str:
        if url not in self.pages:
            raise ConnectionRefusedError(111, "Connection refused")
        return self.pages[url]

    def broker(self, settings: KafkaSettings) -> Broker:  # noqa: ARG002  # the real one's signature
        if self.kafka is None or isinstance(self.kafka, Exception):
            raise self.kafka or AssertionError("nobody was to ask")
        return self.kafka

    def free_bytes(self, folder: Path) -> int:  # noqa: ARG002  # the real one's signature
        return self.free

    def may(self, path: Path, mode: int) -> bool:  # noqa: ARG002  # the real one's signature
        return path not in self.closed


def world(
    root: Path, files: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None, **recorded: Any
) -> Probe:
    """A probe of files below `root` (written here) and recorded answers."""
    for path, text in (files or {}).items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
    return Probe(
        files=Files(root),
        environment=environment or {},
        outside=Recorded(**recorded),
        clock=ManualClock(10**18),
        drift_ns=10**18,
        libc="glibc 2.36",
    )


def found(check: Check, probe: Probe, asked: Asked | None = None) -> dict[str, Level]:
    """Level by id; of several with one id the worst."""
    levels: dict[str, Level] = {}
    for finding in check(probe, asked or Asked()):
        levels[finding.id] = max(finding.level, levels.get(finding.id, Level.OK))
    return levels


def texts(check: Check, probe: Probe, asked: Asked | None = None) -> str:
    """All that was found and is to be done, as one text."""
    return "\n".join(f"{one.id}: {one.found} [{one.fix}]" for one in check(probe, asked or Asked()))
