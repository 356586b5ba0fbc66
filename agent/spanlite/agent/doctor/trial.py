"""Runs a program as `spanlite run` would, with an agent of its own for it, and tells what came."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from spanlite.agent.doctor.finding import Finding, failure, note
from spanlite.agent.doctor.listening import Listening
from spanlite.agent.doctor.probe import Probe
from spanlite.agent.doctor.programs import mapped
from spanlite.agent.doctor.verdict import verdict
from spanlite.agent.native import LIBRARY, environment, find_collector
from spanlite.contract.errors import UsageError

_LOOK_S = 0.1
_END_S = 10.0
_REST_S = 5.0
_SHOWN = ("libcuda.so", "libcupti.so", LIBRARY)


@dataclass
class Ran:
    """How the program ran.

    Attributes:
        code: its exit code, negative for a signal; None where it was ended by us.
        seconds: that it ran.
        libraries: libcuda, libcupti and the collector, as far as they were seen in one of its processes.
    """

    code: int | None = None
    seconds: float = 0.0
    libraries: set[str] = field(default_factory=set)


def trial(probe: Probe, command: Sequence[str], *, seconds: float, collector: Path | None = None) -> Iterator[Finding]:
    """Findings trial.*. The program's output goes to stderr; after `seconds` it is ended."""
    try:
        library = find_collector(collector)
        with tempfile.TemporaryDirectory(prefix="spanlite-doctor-") as folder:
            path = Path(folder) / "agent.sock"
            variables = {**probe.environment, **environment(library, path, probe.environment)}
            variables.pop("SPANLITE_PID", None)  # of a run that started the doctor
            variables.setdefault("SPANLITE_BUDGET", "full")  # all that can come, whatever it costs
            agent = Listening(path, probe.clock)
            try:
                ran = _run(probe, command, variables, seconds)
            finally:
                agent.stop(_REST_S)
    except UsageError as error:
        yield failure("trial.not_started", str(error), "correct that, then try again")
        return
    except OSError as error:
        yield failure(
            "trial.not_started", f"{command[0]}: cannot be started ({error})", "see that it is there and on PATH"
        )
        return
    yield _ended(ran, seconds)
    yield from verdict(agent.heard, agent.counts, ran.libraries, variables)


def _run(probe: Probe, command: Sequence[str], variables: dict[str, str], seconds: float) -> Ran:
    """Starts it in a group of its own, looks at it every tenth of a second, and ends the group when time is over."""
    ran, began_ns = Ran(), probe.clock.monotonic_ns()
    child = subprocess.Popen(  # noqa: S603  # the program that the user names
        command, env=variables, stdout=sys.stderr, start_new_session=True
    )
    try:
        while ran.code is None and ran.seconds < seconds:
            _look(ran, child.pid)
            try:
                ran.code = child.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                ran.code = None
            ran.seconds = (probe.clock.monotonic_ns() - began_ns) / 1e9
    finally:
        _end(child)
    return ran


def _look(ran: Ran, group: int) -> None:
    """Which libraries the processes of a group have mapped."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        ran.libraries |= _libraries(status.parent, group)


def _libraries(process: Path, group: int) -> set[str]:
    """Those of one process; none of one of another group, or that has ended meanwhile."""
    try:
        if os.getpgid(int(process.name)) != group:
            return set()
        files = mapped((process / "maps").read_text("utf-8", "replace"))
    except OSError:
        return set()
    return {short for path in files for short in _SHOWN if path.rpartition("/")[2].startswith(short)}


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the group: what the program has left behind as well."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):  # nobody is left
            os.killpg(child.pid, signum)
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            continue
        return


def _ended(ran: Ran, seconds: float) -> Finding:
    if ran.code is None:
        return note("trial.ended", f"the program ran for {ran.seconds:.1f} s and was ended (--seconds {seconds:g})")
    if ran.code:
        how = f"by signal {-ran.code}" if ran.code < 0 else f"with {ran.code}"
        return note(
            "trial.ended", f"the program ended {how} after {ran.seconds:.1f} s", "see whether it does without spanlite"
        )
    return note("trial.ended", f"the program ended by itself after {ran.seconds:.1f} s")
