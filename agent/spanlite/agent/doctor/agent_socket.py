"""The agent's socket: whether somebody listens, and whether this user may write to it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, Level, failure, ok, warning
from spanlite.agent.doctor.probe import Probe

DEFAULT = Path("/run/spanlite/agent.sock")
_MOST_BYTES = 107
"""sun_path of sockaddr_un without the zero at its end."""


def check(probe: Probe, asked: Asked) -> Iterator[Finding]:
    """Findings socket.*: of the first place at which an agent listens, else of the last. One that nobody asked for is
    only warned of."""
    paths = [asked.socket] if asked.socket else _defaults(probe.environment)
    found = [_one(probe, path) for path in paths]
    shown = next((finding for finding in found if finding.level == Level.OK), found[-1])
    if shown.level == Level.FAILURE and asked.socket is None:
        yield warning(shown.id, shown.found, shown.fix)
    else:
        yield shown


def _defaults(environment: Mapping[str, str]) -> list[Path]:
    """Where a collector looks, in its order."""
    if named := environment.get("SPANLITE_SOCKET"):
        return [Path(named)]
    folder = environment.get("XDG_RUNTIME_DIR")
    return [DEFAULT, *([Path(folder) / "spanlite/agent.sock"] if folder else [])]


def _one(probe: Probe, path: Path) -> Finding:
    start = f"spanlite agent --socket {path} --spool /var/lib/spanlite/spool --bootstrap HOST:9092"
    size = len(os.fsencode(path))
    if size > _MOST_BYTES:
        told = f"{path} has {size} bytes; a socket's path has at most {_MOST_BYTES}"
        return failure("socket.long", told, "choose a shorter one")
    try:
        about = probe.files.at(path).stat()
        if not stat.S_ISSOCK(about.st_mode):
            return failure("socket.other", f"{path} is no socket", f"remove it, then: {start}")
        probe.outside.dial(probe.files.at(path))
    except OSError as error:
        return _unanswered(path, error, start)
    mode = stat.S_IMODE(about.st_mode)
    return ok("socket.listens", f"an agent listens on {path} (user {about.st_uid}, mode {mode:04o})")


def _unanswered(path: Path, error: OSError, start: str) -> Finding:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return failure("socket.missing", f"{path} is not there: no agent runs", start)
        case PermissionError():
            told = f"this user may not connect to {path}: {error.strerror}"
            return failure("socket.forbidden", told, "run program and agent as one user, or both in the socket's group")
        case ConnectionRefusedError():
            return failure("socket.dead", f"nobody listens on {path}: an agent was killed and left it", start)
        case _:
            return failure("socket.unanswered", f"{path}: {error}", f"see whether the agent hangs; then: {start}")
