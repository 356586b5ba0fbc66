"""The agent's spool: read from outside, without its lock."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, failure, note, ok, warning
from spanlite.agent.doctor.probe import Probe
from spanlite.agent.spool.cursor import START, CursorFile
from spanlite.agent.spool.files import Files
from spanlite.agent.spool.folder import LOCK, QUARANTINE
from spanlite.agent.spool.segment import SUFFIX

_MIB = 1 << 20


def check(probe: Probe, asked: Asked) -> Iterator[Finding]:
    """Findings spool.*; none without --spool."""
    if asked.spool is None:
        return
    folder = probe.files.at(asked.spool)
    if not folder.exists():
        yield _missing(probe, folder)
        return
    if not folder.is_dir():
        yield failure("spool.no_folder", f"{folder} is no folder", "name a folder of the agent alone")
        return
    if not probe.outside.may(folder, os.R_OK | os.W_OK | os.X_OK):
        yield failure(
            "spool.unwritable",
            f"this user may not read and write {folder}: an agent would keep 32 MiB in memory and then drop",
            "chown it to the agent's user, and ask the doctor as that user",
        )
        return
    segments = [path for path in sorted(folder.glob(f"*{SUFFIX}")) if path.stem.isdigit()]
    yield from _space(probe, folder, segments, asked.spool_limit)
    yield from _lock(probe, folder)
    yield from _waiting(probe, folder, segments)


def _missing(probe: Probe, folder: Path) -> Finding:
    above = next(parent for parent in folder.parents if parent.exists())
    if probe.outside.may(above, os.W_OK | os.X_OK):
        return note("spool.missing", f"{folder} is not there yet: the agent makes it")
    return failure(
        "spool.unwritable", f"{folder} is not there, and this user may not make it in {above}", f"mkdir -p {folder}"
    )


def _space(probe: Probe, folder: Path, segments: list[Path], limit: int) -> Iterator[Finding]:
    taken = sum(path.stat().st_size for path in segments)
    free = probe.outside.free_bytes(folder)
    told = f"{_mib(taken)} of at most {_mib(limit)} are taken, the disk has {_mib(free)} free"
    if free < max(0, limit - taken):
        yield warning(
            "spool.space",
            f"{told}: it is full before the spool is",
            f"--spool-limit {max(1, (taken + free) * 9 // 10 // _MIB)}MiB for agent and doctor, or a larger disk",
        )
    elif taken > limit // 2:
        yield warning("spool.space", told, "see why Kafka does not take them (part kafka); then spans are dropped")
    else:
        yield ok("spool.space", told)


def _lock(probe: Probe, folder: Path) -> Iterator[Finding]:
    """Who holds the lock, by the kernel's list: trying it could get into the way of an agent that starts."""
    lock = folder / LOCK
    listed = probe.files.text("/proc/locks")
    if listed is None:
        yield note(
            "spool.lock_unknown", "the kernel does not list locks here: whether an agent has the spool is unknown"
        )
        return
    if not lock.exists():
        return
    about = lock.stat()
    file = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    found = re.search(rf"FLOCK +ADVISORY +WRITE +(-?\d+) +{file} ", listed)
    if found:
        yield ok("spool.in_use", f"process {found[1]} has the spool: one agent, as it should be")


def _waiting(probe: Probe, folder: Path, segments: list[Path]) -> Iterator[Finding]:
    try:
        saved = CursorFile(Files(), folder).read()
    except ValueError as error:
        yield warning(
            "spool.cursor", f"{error}: the next start sends everything again", "nothing: readers drop what is double"
        )
        return
    sent = (saved.position if saved else START).sequence
    following = [int(path.stem) for path in segments[1:]]
    waiting = [path for path, after in zip(segments, [*following, sent + 1], strict=False) if after > sent]
    size = sum(path.stat().st_size for path in waiting)
    if size:
        oldest_s = probe.clock.unix_ns() / 1e9 - waiting[0].stat().st_mtime
        told = f"files from batch {int(waiting[0].stem)} on, acknowledged up to {sent - 1}: {_mib(size)} at most wait"
        yield note("spool.waiting", f"{told}; the oldest file was last written {max(0, oldest_s):.0f} s ago")
    quarantined = sorted((folder / QUARANTINE).glob("*"))
    if quarantined:
        yield warning(
            "spool.quarantine",
            f"{len(quarantined)} files could not be read and were put aside, such as {quarantined[-1].name}",
            "look for a failing disk; their spans are counted as dropped. Delete the files when they are not needed",
        )


def _mib(size: int) -> str:
    return f"{size / _MIB:,.1f} MiB" if size < 10 * _MIB else f"{size / _MIB:,.0f} MiB"
