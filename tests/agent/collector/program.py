"""A traced process that does what it is told, line by line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from spanlite.runtime.clock import SystemClock
from tests.agent.collector.building import Built

_CLOCK = SystemClock()
_PATIENCE_NS = 60 * 10**9


def until(met: Callable[[], bool], what: str) -> None:
    """Waits for a condition; a minute of it not being met fails the test."""
    end = _CLOCK.monotonic_ns() + _PATIENCE_NS
    while not met():
        assert _CLOCK.monotonic_ns() < end, f"in vain waited for: {what}"
        _CLOCK.sleep_s(0.005)


class Program:
    """The driver, running.

    Args:
        socket: where the collector looks for the agent.
        variables: more environment, e.g. SPANLITE_DISABLE="1".
    """

    def __init__(self, built: Built, socket: Path, **variables: str) -> None:
        self.built = built
        environment = {
            "PATH": os.defpath,
            "SPANLITE_SOCKET": str(socket),
            "SPANLITE_FLUSH_MS": "20",
            "SPANLITE_BUDGET": "full",
            "SPANLITE_SETTLE_MS": "50",
            "SPANLITE_RESUME_MS": "200",
            "TSAN_OPTIONS": "die_after_fork=0",
            "ASAN_OPTIONS": "detect_leaks=0",
            **variables,
        }
        self.child = subprocess.Popen(
            built.driver,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.output: list[str] = []

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.child.kill()
        self.child.communicate()

    def tell(self, *lines: str) -> None:
        """Commands whose answers are not waited for."""
        assert self.child.stdin
        self.child.stdin.write("".join(f"{line}\n" for line in lines))
        self.child.stdin.flush()

    def ask(self, line: str) -> str:
        """One command and its answer."""
        self.tell(line)
        assert self.child.stdout
        answer = self.child.stdout.readline().rstrip("\n")
        if not answer:
            _, errors = self.child.communicate()
            raise AssertionError(f"{line}: the program ended with {self.child.returncode}: {errors}")
        self.output.append(answer)
        return answer

    def number(self, line: str) -> int:
        """One command whose answer is a number."""
        return int(self.ask(line))

    def start(self, *before: str) -> Program:
        """Loads libcuda, libcupti and the collector, as cuInit would; no context yet.

        Args:
            before: commands that come before the collector, e.g. `set version 24`.
        """
        self.ask(f"preload {self.built.cuda}")
        self.ask(f"preload {self.built.cupti}")
        for line in before:
            self.ask(line)
        assert self.ask(f"init {self.built.collector}") == "1"
        return self

    def end(self, *lines: str) -> tuple[int, str]:
        """Lets main end, or the last lines do it.

        Returns:
            The exit status, and all that was written to stderr.
        """
        self.tell(*lines)
        _, errors = self.child.communicate(timeout=60)
        return self.child.returncode, errors

    def ended_well(self, *lines: str) -> None:
        """The program ended as it would have without the collector, and nobody wrote anything."""
        assert self.end(*lines) == (0, "")
