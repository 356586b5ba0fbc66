"""Servers that outlive the command that started them: who they are, whether they still run, how they end."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.stack.process import wait_until

_END_S = 20.0


@dataclass(frozen=True)
class Daemon:
    """A process by its id and, because ids come round again, the moment it began (clock ticks since boot)."""

    part: str
    port: int
    pid: int
    began: int

    @classmethod
    def of(cls, part: str, port: int, pid: int) -> Daemon:
        """The running process `pid`, of the server that people reach at `port`."""
        began = _began(pid)
        if began is None:
            raise ProcessLookupError(f"{part}: process {pid} has ended")
        return cls(part, port, pid, began)

    @property
    def runs(self) -> bool:
        return _began(self.pid) == self.began

    def stop(self) -> None:
        """SIGTERM, after 20 s SIGKILL; returns when it is gone, at once when it is gone already."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.runs:
                return
            os.kill(self.pid, number)
            wait_until(lambda: not self.runs, _END_S)


def load(file: Path) -> list[Daemon]:
    """Those that were saved and still run."""
    if not file.exists():
        return []
    return [daemon for daemon in (Daemon(**fields) for fields in json.loads(file.read_text("utf-8"))) if daemon.runs]


def save(file: Path, daemons: list[Daemon]) -> None:
    """Replaces what was saved."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(daemon) for daemon in daemons], indent=1), encoding="utf-8")


def _began(pid: int) -> int | None:
    """When the process began, None when there is none or only its unreaped entry."""
    try:
        # The name, in parentheses, may itself hold anything; fields are counted from behind it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])
