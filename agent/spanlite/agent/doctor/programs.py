"""A program that runs, as /proc shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spanlite.agent.doctor.probe import Files


@dataclass(frozen=True)
class Running:
    """Another process.

    Attributes:
        command: its words with spaces.
        environment: as it was started with.
        mapped: files that it has mapped, each once, as the process names them.
    """

    pid: int
    command: str
    environment: Mapping[str, str]
    mapped: tuple[str, ...]

    @property
    def root(self) -> str:
        """Where its own files are seen, those of its container."""
        return "/".join(("/proc", str(self.pid), "root"))

    def mapping(self, *beginnings: str) -> list[str]:
        """Mapped files whose names begin like this."""
        return [path for path in self.mapped if path.rpartition("/")[2].startswith(beginnings)]


def running(files: Files, pid: int) -> Running | None:
    """The process, None where there is none.

    Raises:
        PermissionError: it is another user's.
    """
    command = files.text(f"/proc/{pid}/cmdline")
    environ = files.text(f"/proc/{pid}/environ")
    maps = files.text(f"/proc/{pid}/maps")
    if command is None or environ is None or maps is None:
        return None
    return Running(pid, command.replace("\0", " ").strip(), variables(environ), mapped(maps))


def variables(environ: str) -> dict[str, str]:
    """/proc/PID/environ as a mapping."""
    pairs = (entry.partition("=") for entry in environ.split("\0") if "=" in entry)
    return {key: value for key, _, value in pairs}


def mapped(maps: str) -> tuple[str, ...]:
    """The files in /proc/PID/maps, each once, in its order."""
    paths = (line.split(maxsplit=5)[5].strip() for line in maps.splitlines() if line.count("/"))
    return tuple(dict.fromkeys(path.removesuffix(" (deleted)") for path in paths if path.startswith("/")))


def processes(files: Files) -> Iterator[tuple[int, str]]:
    """Pid and name (15 characters at most) of all processes that this one can see."""
    for path in files.glob("/proc/[0-9]*/comm"):
        name = files.text(path)
        if name is not None:
            yield int(path.split("/")[2]), name.strip()
