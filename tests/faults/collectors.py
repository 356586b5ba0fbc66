"""Programs that the native collector traces, agents that come and go, and the account of what became of each launch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.counts import AgentCounts
from spanlite.agent.spool.spool import Spool
from spanlite.contract.codec import decode_batch
from tests.agent.collector.building import Built
from tests.agent.collector.kernels import KERNEL_BYTES
from tests.agent.collector.program import Program
from tests.agent.records import kernel
from tests.faults.agents import Agent, until

HERE = Path(__file__).parent
BUFFER_KIB, BUFFERS = 16, 16
"""Of the programs here: small, so that a hanging agent costs spans soon."""
PER_BUFFER = (BUFFER_KIB << 10) // KERNEL_BYTES
_AWAY = ("--bootstrap", "127.0.0.1:1")
_TAKES_ALL = ("-X", "test.mock.num.brokers=1", "-X", "allow.auto.create.topics=true")
"""A broker that librdkafka plays itself."""
_FAREWELL = re.compile(r"(\d+) spans delivered, (\d+) left in the spool; dropped: (.*)")


@dataclass(frozen=True)
class Launching(Built):
    """The program of launching.py; `place` holds what it reads and writes."""

    place: Path = Path()

    @property
    def driver(self) -> list[str | Path]:
        files = [self.place / "record", self.place / "times"]
        return [sys.executable, HERE / "launching.py", self.cuda, self.cupti, *files]


class Launcher(Program):
    """A program that launches, traced from its first launch on, or (`traced` false) without anything of spanlite."""

    def __init__(
        self,
        built: Built,
        place: Path,
        socket: Path,
        variables: Mapping[str, str] | None = None,
        *,
        traced: bool = True,
    ) -> None:
        place.mkdir(parents=True)
        (place / "record").write_bytes(kernel(0, 0, 0, name=0))
        self.place = place
        self.asked: list[str] = []
        sizes = {"SPANLITE_BUFFER_KIB": str(BUFFER_KIB), "SPANLITE_POOL_KIB": str(BUFFERS * BUFFER_KIB)}
        injection = {"CUDA_INJECTION64_PATH": str(built.collector)} if traced else {}
        all_variables = {**sizes, **injection, **(variables or {})}
        super().__init__(Launching(built.folder, place=place), socket, **all_variables)

    def __enter__(self) -> Launcher:
        return self

    def ask(self, line: str) -> str:
        self.asked.append(line)
        return super().ask(line)

    def started_ns(self) -> NDArray[np.int64]:
        """When each launch began."""
        return np.frombuffer((self.place / "times").read_bytes(), dtype=np.int64)

    def ended_as_without(self, *last: str) -> int:
        """The end, by the last lines if there are any: output, error output and exit status are those without spanlite.

        Returns:
            How many kernels it launched.
        """
        ended = self.end(*last)
        with Launcher(self.built, self.place / "without", Path("/nowhere"), traced=False) as other:
            for line in self.asked:
                words = line.split()
                other.ask(" ".join([*words[:2], "1000000"]) if words[0] in ("launch", "background") else line)
            assert (ended, self.output) == (other.end(*last), other.output)
        return len(self.started_ns())


class Load:
    """Launches at a steady rate for as long as the context lasts, whatever else happens meanwhile."""

    def __init__(self, program: Program, rate: int = 2000) -> None:
        self._program, self._line = program, f"launch {rate // 20} {rate}"
        self._over = threading.Event()
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._program.ask(self._line)
        except Exception as error:  # noqa: BLE001  # raised again where the test waits
            self._failed = error

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed


class Nursery:
    """Where agents are forked, one at a time."""

    def __init__(self) -> None:
        words = [sys.executable, str(HERE / "nursery.py")]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._pid = 0

    def start(self, log: Path, *words: str) -> int:
        """The agent's pid."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([str(log), *words]) + "\n")
        self._process.stdin.flush()
        self._pid = self._answer()
        return self._pid

    def signal(self, number: int) -> None:
        """Sends the agent a signal."""
        os.kill(self._pid, number)

    def wait(self) -> int:
        """The exit code of the agent, negative for a signal."""
        self._pid, code = 0, self._answer()
        return code

    def _answer(self) -> int:
        assert self._process.stdout
        return int(self._process.stdout.readline())

    def clear(self) -> None:
        """Ends the agent that a test has left."""
        if self._pid:
            self.signal(signal.SIGKILL)
            self.wait()

    def end(self) -> None:
        self._process.communicate(timeout=60)


class ForkedAgent(Agent):
    """`spanlite agent` of a nursery, with its spool and its log in a folder.

    Args:
        takes_all: its broker takes everything at once; else it is away, and all stays in the spool.
    """

    def __init__(self, nursery: Nursery, folder: Path, socket: Path, *, takes_all: bool = False) -> None:
        self.socket = socket
        self._nursery = nursery
        self._path = folder / "agent.log"
        self._path.touch()
        self._begin = self._path.stat().st_size
        words = ["agent", "--socket", str(socket), "--spool", str(folder / "spool"), "--metrics-port", "0"]
        self.pid = nursery.start(self._path, *words, *_AWAY, *(_TAKES_ALL if takes_all else ()))
        until(lambda: "metrics: http" in self._said() or not self._is_there(), "the agent's start")
        found = re.search(r"metrics: (http://127\.0\.0\.1:\S+)", self._said())
        assert found is not None, self._said()
        self.url = found[1]

    def _is_there(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").exists()

    def received(self) -> int:
        return int(self.metrics().get("spans_received_total", 0))

    def dropped(self) -> Counter[str]:
        """Spans by the reason for which they were dropped."""
        with urllib.request.urlopen(self.url, timeout=10) as answer:  # noqa: S310  # the address of this machine
            found = re.findall(
                r'^spanlite_agent_spans_dropped_total{reason="(\w+)"} (\S+)', answer.read().decode(), re.M
            )
        return Counter({reason: int(float(count)) for reason, count in found})

    def collectors(self) -> int:
        """How many are connected."""
        return int(self.metrics().get("collectors", 0))

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def kill(self) -> None:
        """SIGKILL."""
        self._nursery.signal(signal.SIGKILL)
        assert self._nursery.wait() == -signal.SIGKILL

    def end(self) -> tuple[int, str]:
        """SIGTERM: exit code and its last line."""
        self._nursery.signal(signal.SIGTERM)
        return self._nursery.wait(), self._said().splitlines()[-1]


class Account:
    """What agents said that they took and lost, over all their lives."""

    def __init__(self) -> None:
        self.delivered = self.kills = 0
        self.left = 0
        self.told: Counter[str] = Counter()

    def kill(self, agent: ForkedAgent) -> None:
        """SIGKILL; what it had been told of is what it showed just before."""
        self.told += agent.dropped()
        self.kills += 1
        agent.kill()

    def end(self, agent: ForkedAgent) -> None:
        """SIGTERM; its last line is exact."""
        code, line = agent.end()
        found = _FAREWELL.fullmatch(line)
        assert found is not None, line
        told = Counter({word: int(count) for count, word in re.findall(r"(\d+) ([a-z_]+)", found[3])})
        assert code == (3 if told else 0), line
        self.delivered += int(found[1])
        self.left = int(found[2])
        self.told += told

    def without_a_word(self, fired: int) -> int:
        """Launches that neither arrived anywhere nor were told of as lost."""
        return fired - self.delivered - self.left - self.told.total()


def in_spool(folder: Path) -> NDArray[np.int64]:
    """When each span began that an agent which has ended left in its spool."""
    spool = Spool(folder / "spool", AgentCounts())
    try:
        return np.concatenate([np.zeros(0, dtype=np.int64), *_starts(spool)])
    finally:
        spool.close()


def _starts(spool: Spool) -> Iterable[NDArray[np.int64]]:
    at = 0
    while (found := spool.fetch(at)) is not None:
        sequence, item = found
        at = sequence + 1
        yield decode_batch(item.value).columns.start_ns
