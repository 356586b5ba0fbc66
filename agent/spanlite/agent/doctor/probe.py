"""The world outside, as far as checks see it; tests give a recorded one."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from json import loads
from pathlib import Path
from typing import Any, Protocol

from spanlite.runtime.clock import Clock, SystemClock
from spanlite.transport.kafka_settings import KafkaSettings

_PATIENCE_S = 20.0
_INJECTED = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
"""Not for our own processes: nobody is to trace the doctor."""


class Files:
    """Files below a root that stands for `/`; paths are given and told as in that world."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def at(self, path: str | Path) -> Path:
        """Where the file really is."""
        return self._root / str(path).lstrip("/")

    def text(self, path: str | Path) -> str | None:
        """Its content, None where it is not there.

        Raises:
            OSError: it is there and cannot be read.
        """
        try:
            return self.at(path).read_bytes().decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            return None

    def glob(self, pattern: str) -> list[str]:
        """What matches, sorted."""
        prefix = str(self._root).rstrip("/")
        return sorted(str(path).removeprefix(prefix) for path in self._root.glob(pattern.lstrip("/")))


class Broker(Protocol):
    """What is asked of Kafka (transport.kafka_admin.KafkaAdmin)."""

    def found(self, names: Sequence[str]) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Outside:
    """Everything that is no file: each method is one question, and raises what the system raises."""

    def load(self, what: str, library: str, environment: Mapping[str, str]) -> dict[str, Any]:
        """A question of `loading.ASKED` in a process of its own; `error` says what went wrong, `crashed` that it ended
        by a signal or was stopped after 20 seconds."""
        script = Path(__file__).with_name("loading.py")
        clean = {key: value for key, value in environment.items() if key not in _INJECTED}
        command = [sys.executable, "-I", str(script), what, library]
        try:
            done = subprocess.run(  # noqa: S603  # our own script
                command, env=clean, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=False
            )
        except subprocess.TimeoutExpired:
            return {"error": f"no answer within {_PATIENCE_S:.0f} s", "crashed": True}
        if done.returncode:
            last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
            return {"error": f"it ended with {done.returncode}: {last[:200]}", "crashed": True}
        answer: dict[str, Any] = loads(done.stdout)
        return answer

    def dial(self, path: Path) -> None:
        """Connects to a unix socket and hangs up without a word, which an agent does not mind."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(5)
            peer.connect(str(path))

    def reach(self, host: str, port: int) -> str:
        """Connects by TCP; returns the address that answered."""
        with socket.create_connection((host, port), timeout=5) as peer:
            return str(peer.getpeername()[0])

    def fetch(self, url: str) -> str:
        """The body of an HTTP answer."""
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  # the scheme is checked by the caller
            body: bytes = answer.read(64 << 20)
        return body.decode("utf-8", "replace")

    def broker(self, settings: KafkaSettings) -> Broker:
        """An admin client; ModuleNotFoundError without confluent-kafka."""
        from spanlite.transport.kafka_admin import KafkaAdmin

        return KafkaAdmin(settings)

    def free_bytes(self, folder: Path) -> int:
        """What a user without privileges may still write there."""
        return shutil.disk_usage(folder).free

    def may(self, path: Path, mode: int) -> bool:
        """access(2) with os.R_OK, os.W_OK."""
        return os.access(path, mode)


@dataclass(frozen=True)
class Probe:
    """All that a check may look at.

    Attributes:
        environment: of the doctor itself.
        python_path: folders of installed packages.
        libc: name and version of the C library, `glibc 2.36`; empty where it does not say.
        machine: as `uname -m` says.
        drift_ns: wall clock minus monotonic clock when the doctor began.
    """

    files: Files = field(default_factory=Files)
    environment: Mapping[str, str] = field(default_factory=dict)
    outside: Outside = field(default_factory=Outside)
    clock: Clock = field(default_factory=SystemClock)
    python_path: tuple[str, ...] = ()
    libc: str = ""
    machine: str = "x86_64"
    drift_ns: int = 0

    def load(self, what: str, library: str, **changed: str) -> dict[str, Any]:
        """`Outside.load` in the doctor's environment with `changed` variables."""
        return self.outside.load(what, library, {**self.environment, **changed})


class _Remembering(Outside):
    """Asks each question about a library once."""

    def load(self, what: str, library: str, environment: Mapping[str, str]) -> dict[str, Any]:
        return self._once(what, library, tuple(sorted(environment.items())))

    @cache  # noqa: B019  # it lives as long as the command
    def _once(self, what: str, library: str, environment: tuple[tuple[str, str], ...]) -> dict[str, Any]:
        return super().load(what, library, dict(environment))


def real_probe(environment: Mapping[str, str]) -> Probe:
    """This machine."""
    clock = SystemClock()
    return Probe(
        environment=environment,
        outside=_Remembering(),
        clock=clock,
        python_path=tuple(path for path in sys.path if path.endswith("-packages")),
        libc=_libc(),
        machine=platform.machine(),
        drift_ns=clock.unix_ns() - clock.monotonic_ns(),
    )


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # musl has no such name
        return ""
