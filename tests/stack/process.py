"""A server program in a process of its own: start, fail with a reason, stall, die, stop."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spanlite.runtime.clock import SystemClock

_POLL_S = 0.05
# The kernel tells a child of its parent's death when the *thread* that made it ends, hence one that stays to the end.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stack")
# Below what the kernel gives to clients: there a client that tries a dead server's port again and again may be given
# that very port as its own, connects to itself, and the server never comes back.
_PORTS = range(20_000, 32_000)


class StackError(Exception):
    """A part of the local cluster did not start or do what it was told; the first line says which and why."""


def port_is_free(port: int) -> bool:
    """Whether a server may listen on 127.0.0.1:`port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that nothing listens on and that stays this server's while it is down."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        if port_is_free(port):
            return port
    raise StackError(f"no port of 100 tried between {_PORTS.start} and {_PORTS.stop} on 127.0.0.1 is free")


def require_port(name: str, port: int, remedy: str) -> None:
    """Raises when something else listens on `port`."""
    if not port_is_free(port):
        raise StackError(f"{name}: port {port} on 127.0.0.1 is taken; {remedy}")


def require_program(name: str, program: str, package: str) -> str:
    """The path of `program`, or an error that names the Debian package with it."""
    path = shutil.which(program)
    if path is None:
        raise StackError(
            f"{name}: {program} is not installed; on Debian: apt-get install --no-install-recommends {package}"
        )
    return path


def wait_until(condition: Callable[[], bool], timeout_s: float, *, every_s: float = _POLL_S) -> bool:
    """Asks again and again until it holds; False when it did not in time."""
    clock = SystemClock()
    deadline_ns = clock.monotonic_ns() + round(timeout_s * 1e9)
    while not condition():
        if clock.monotonic_ns() > deadline_ns:
            return False
        clock.sleep_s(every_s)
    return True


class Process:
    """One running server; its output is appended to `log`.

    It dies with this process, however that ends, unless it `lives_on`. Ctrl-C does not reach it.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        lives_on: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        guard = [] if lives_on else [require_program(name, "setpriv", "util-linux"), "--pdeathsig", "KILL", "--"]
        with log.open("ab") as output:
            self._from = output.tell()
            self._popen = _SPAWNER.submit(
                subprocess.Popen,
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            ).result()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal when one ended it."""
        code: int | None = self._popen.poll()
        return code

    def said(self) -> str:
        """What it has written since this start."""
        with self.log.open("rb") as lines:
            lines.seek(self._from)
            return lines.read().decode("utf-8", errors="replace")

    def await_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Returns when it is ready; StackError with the end of its log when it ended or took too long (then killed)."""
        wait_until(lambda: self.exit_code is not None or ready(), timeout_s)
        if self.exit_code is not None:
            raise StackError(f"{self.name} ended at its start with code {self.exit_code}{self.tail()}")
        if not ready():
            self.kill()
            raise StackError(f"{self.name} was not ready after {timeout_s:g} s{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        """The end of its log as the rest of an error's text."""
        last = "".join(f"\n  {line}" for line in self.said().splitlines()[-lines:])
        return f"; its log {self.log} ends with:{last}" if last else f"; its log {self.log} is empty"

    def kill(self) -> None:
        """As a crash: SIGKILL; returns when it is gone."""
        self._popen.kill()
        self._popen.wait()

    def pause(self) -> None:
        """Stalls it: its sockets stay open and nobody answers."""
        self._popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._popen.send_signal(signal.SIGCONT)

    def stop(self, timeout_s: float = 20) -> None:
        """SIGTERM, after `timeout_s` SIGKILL; returns when it is gone."""
        self.resume()
        self._popen.terminate()
        try:
            self._popen.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()


def environment(**extra: str) -> dict[str, str]:
    """This process's environment and `extra`."""
    return {**os.environ, **extra}  # noqa: TID251  # a server inherits PATH, HOME and JAVA_HOME like any program
