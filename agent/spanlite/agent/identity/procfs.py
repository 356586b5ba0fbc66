"""What /proc says of a process, read so that it cannot be of another one that got the same number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_MOST_BYTES = 1 << 20
"""Of one file; an environment may be larger, and is then cut."""
_START_FIELD = 22
"""Field `starttime` of /proc/PID/stat, counted from 1."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process at one moment.

    Attributes:
        start_ticks: when it was started, in clock ticks since boot: with the pid its name for ever.
        cgroup: text of /proc/PID/cgroup.
        executable: base name of the program; the command name, up to 15 bytes, where its link may not be read.
        vpid: its pid as it knows it itself, in the innermost namespace; 0 where that is not told.
        environ: variables it was started with; None where they may not be read.
    """

    start_ticks: int
    cgroup: str
    executable: str
    vpid: int
    environ: dict[str, str] | None


def read_process(pid: int, root: Path = Path("/proc")) -> ProcessFacts | None:
    """The facts of a process; None where it is gone, or went while they were read.

    A pid that another process got meanwhile shows by its start. Files that may not be read leave a fact empty.
    """
    folder = root / str(pid)
    before = _start_ticks(folder)
    if before is None:
        return None
    facts = ProcessFacts(
        start_ticks=before,
        cgroup=_text(folder / "cgroup") or "",
        executable=_executable(folder),
        vpid=_vpid(_text(folder / "status") or ""),
        environ=_environ(folder),
    )
    return facts if _start_ticks(folder) == before else None


def _start_ticks(folder: Path) -> int | None:
    text = _text(folder / "stat")
    if not text:
        return None
    # The command in parentheses may hold spaces and parentheses itself.
    fields = text.rpartition(")")[2].split()
    return int(fields[_START_FIELD - 3]) if len(fields) > _START_FIELD - 3 else None


def _executable(folder: Path) -> str:
    try:
        target = (folder / "exe").readlink()
    except OSError:  # not ours to see, or a kernel thread
        return (_text(folder / "comm") or "").removesuffix("\n")
    return target.name.removesuffix(" (deleted)")


def _vpid(status: str) -> int:
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            numbers = line.split()[1:]
            return int(numbers[-1]) if numbers else 0
    return 0


def _environ(folder: Path) -> dict[str, str] | None:
    text = _text(folder / "environ")
    if text is None:
        return None
    pairs = (entry.partition("=") for entry in text.split("\0"))
    found: dict[str, str] = {}
    for name, equals, value in pairs:
        if equals:
            found.setdefault(name, value)  # as getenv reads it: the first counts
    return found


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:  # gone, or not ours to see: the fact stays empty
        return None
