"""A real Flink cluster: JobManager and TaskManagers as processes of their own, from pip's PyFlink."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.stack.flink_folder import lay_out
from tests.stack.flink_java import FlinkJava
from tests.stack.flink_rest import FlinkRest
from tests.stack.process import Process, StackError, free_port, require_port
from tests.stack.zookeeper import start_zookeeper

# Generous: on a busy machine with two cores all takes ten times what it takes alone.
_START_S = 180.0
_SUBMIT_S = 240.0
_JOB_S = 180.0
_SUBMITTED = re.compile(r"JobID ([0-9a-f]{32})")
# Lines of the client's output that do not help: the JVM's and log4j's greetings, and where in Flink it happened.
_NOISE = re.compile(r"WARNING|SLF4J|Picked up|\s*$|\tat |\t?\.\.\. \d+ more")


class Flink:
    """A session cluster whose settings, logs, checkpoints (`checkpoints/JOB/chk-N`) and savepoints lie in `folder`.

    `venv` holds PyFlink and spanlite (`make flink-venv`), `mode` is Flink's `python.execution-mode`, `settings` are
    keys of config.yaml and win, `slots` are those of each TaskManager. With `ha` a ZooKeeper remembers the jobs: after
    `kill_jobmanager` a new one goes on with them. Without it they are gone, and `newest_checkpoint` is where to submit
    them anew from.
    """

    def __init__(
        self,
        folder: Path,
        *,
        venv: Path,
        slots: int = 1,
        taskmanagers: int = 1,
        mode: str = "thread",
        settings: Mapping[str, str] | None = None,
        rest_port: int = 0,
        ha: bool = False,
        lives_on: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self._venv = venv.absolute()
        self._slots = slots
        self._count = taskmanagers
        self._settings = {
            "taskmanager.numberOfTaskSlots": str(slots),
            "python.execution-mode": mode,
            **(settings or {}),
        }
        self._port = rest_port
        self._ha = ha
        self._lives_on = lives_on
        self._zookeeper: Process | None = None
        self.jobmanager: Process | None = None
        self.taskmanagers: list[Process] = []

    @property
    def rest_url(self) -> str:
        """`http://127.0.0.1:PORT`, the same over all restarts; also the web page's address."""
        if self._port == 0:
            self._port = free_port()
        return f"http://127.0.0.1:{self._port}"

    @property
    def rest(self) -> FlinkRest:
        """What is not worth a method here."""
        return FlinkRest(int(self.rest_url.rpartition(":")[2]))

    def start(self) -> None:
        """Starts all processes and returns when every slot is registered; StackError says what did not come up."""
        require_port("flink", int(self.rest_url.rpartition(":")[2]), "stop what listens there or choose another port")
        keys = {
            "rest.port": str(self._port),
            "rest.bind-port": str(self._port),
            "jobmanager.rpc.port": str(free_port()),
        }
        try:
            lay_out(self.folder, self._venv, {**keys, **self._settings})
            if self._ha:
                lay_out(self.folder, self._venv, {**keys, **self._remembered(), **self._settings})
            options = self._settings.get("env.java.opts.taskmanager", "")
            self._java = FlinkJava(self.folder, self._venv, taskmanager=options)
            self.start_jobmanager()
            for process in [self._launch_taskmanager() for _ in range(self._count)]:
                self._await_registered(process)
        except StackError:
            self.close()
            raise

    def close(self) -> None:
        """Ends all processes, jobs and all."""
        for process in (*self.taskmanagers, self.jobmanager, self._zookeeper):
            if process is not None and process.exit_code is None:
                process.stop(10)

    def start_jobmanager(self) -> None:
        """A JobManager, also a new one after `kill_jobmanager`; returns when the living TaskManagers are registered."""
        self.jobmanager = self._launch("jobmanager", "JM")
        self.jobmanager.await_ready(self._answers, _START_S)
        for process in self.taskmanagers:
            if process.exit_code is None:
                self._await_registered(process)

    def kill_jobmanager(self) -> None:
        """As a crash: SIGKILL; returns when it is gone."""
        if self.jobmanager is None:
            raise StackError("flink: no JobManager was started")
        self.jobmanager.kill()

    def add_taskmanager(self) -> Process:
        """One more, with its slots registered when this returns."""
        process = self._launch_taskmanager()
        self._await_registered(process)
        return process

    def submit(
        self, job_file: Path, *arguments: str, savepoint: Path | None = None, parallelism: int | None = None
    ) -> str:
        """Starts a Python job, from a savepoint or retained checkpoint if given, and returns its id."""
        python = str(self._venv / "bin/python")
        words = ["run", "--detached", "-pyexec", python, "-pyclientexec", python]
        words += [] if savepoint is None else ["--fromSavepoint", savepoint.absolute().as_uri()]
        words += [] if parallelism is None else ["--parallelism", str(parallelism)]
        done = subprocess.run(
            self._java.client(*words, "-py", str(job_file.absolute()), *arguments),
            env=self._java.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SUBMIT_S,
            check=False,
        )
        found = _SUBMITTED.search(done.stdout)
        if done.returncode != 0 or found is None:
            lines = [line for line in done.stdout.splitlines() if not _NOISE.match(line)]
            said = "".join(f"\n  {line}" for line in lines[:60])
            raise StackError(
                f"flink: {job_file.name} was not accepted (code {done.returncode}); the client says:{said}"
            )
        return found[1]

    def job_state(self, job_id: str) -> str:
        """RUNNING, RESTARTING, FAILED, …"""
        return self.rest.job_state(job_id)

    def checkpoints(self, job_id: str) -> Any:
        """Counts, summary, latest and history of the job's checkpoints, as Flink's JSON."""
        return self.rest.checkpoints(job_id)

    def newest_checkpoint(self, job_id: str) -> Path:
        """The folder of the job's newest complete checkpoint, also of a job or JobManager that is gone."""
        complete = (self.folder / "checkpoints" / job_id).glob("chk-*/_metadata")
        newest = max(complete, key=lambda file: int(file.parent.name.removeprefix("chk-")), default=None)
        if newest is None:
            raise StackError(f"flink: job {job_id} has no complete checkpoint in {self.folder / 'checkpoints'}")
        return newest.parent

    def stop(self, job_id: str, savepoint_folder: Path | None = None, *, drain: bool = False) -> Path:
        """Ends a job with a savepoint and returns its folder; with `drain` the windows that are open fire first."""
        target = savepoint_folder or self.folder / "savepoints"
        return Path(self.rest.stop(job_id, target.absolute().as_uri(), drain=drain, timeout_s=_JOB_S))

    def cancel(self, job_id: str) -> None:
        """Ends a job without a savepoint; its last checkpoint stays."""
        self.rest.cancel(job_id, _JOB_S)

    def __enter__(self) -> Flink:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch_taskmanager(self) -> Process:
        name = f"taskmanager-{len(self.taskmanagers)}"
        process = self._launch(name, "TM", f"taskmanager.resource-id={name}")
        self.taskmanagers.append(process)
        return process

    def _launch(self, name: str, kind: str, *settings: str) -> Process:
        return Process(
            f"flink's {name}",
            self._java.server(kind, *settings),
            self.folder / f"log/{name}.log",
            environment=self._java.environment(),
            lives_on=self._lives_on,
        )

    def _remembered(self) -> dict[str, str]:
        """Starts the ZooKeeper; the settings that make JobManagers use it."""
        address, self._zookeeper = start_zookeeper(
            self.folder / "zookeeper", self.folder / "lib", lives_on=self._lives_on
        )
        return {
            "high-availability.type": "zookeeper",
            "high-availability.storageDir": (self.folder / "ha").as_uri(),
            "high-availability.zookeeper.quorum": address,
            "high-availability.zookeeper.client.session-timeout": "4000",
            "high-availability.jobmanager.port": str(free_port()),
        }

    def _answers(self) -> bool:
        try:
            self.rest.ask("GET", "/overview")
        except (OSError, HTTPException, StackError):  # not up yet, or no leader yet
            return False
        return True

    def _await_registered(self, process: Process) -> None:
        """Waits until the JobManager counts this TaskManager's slots."""
        name = process.log.stem
        process.await_ready(lambda: self.rest.taskmanagers().get(name) == self._slots, _START_S)
