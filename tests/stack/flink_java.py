"""How Flink's programs are started: what its shell scripts do, with one JVM where those start three.

The scripts ask a JVM for the settings and another for the sizes of memory before each server and each submission;
on two cores that doubles the time of a restart. Here the sizes are asked for once.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from tests.stack.flink_folder import opened_modules, pyflink
from tests.stack.process import StackError, environment, require_program

_RESULT = "BASH_JAVA_UTILS_EXEC_RESULT:"
_UTILITY = "org.apache.flink.runtime.util.bash.BashJavaUtils"
_CLIENT = "org.apache.flink.client.cli.CliFrontend"
_SERVERS = {
    "JM": "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
    "TM": "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
}
# For programs that end soon: no compiling for the long run, no threads for collecting garbage.
_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class FlinkJava:
    """Command lines of one laid out folder; settings of config.yaml count as they were at `__init__`.

    `taskmanager` are options of the TaskManagers' JVM, as Flink's scripts take them from env.java.opts.taskmanager.
    """

    def __init__(self, folder: Path, venv: Path, *, taskmanager: str = "") -> None:
        self._java = require_program("flink", "java", "openjdk-17-jre-headless")
        self._package = pyflink(venv)
        self._conf, self._lib = folder / "conf", folder / "lib"
        self._opened = shlex.split(opened_modules(self._package))
        self._more = {"TM": shlex.split(taskmanager)}
        self._server = {kind: self._sizes(kind) for kind in _SERVERS}

    def server(self, kind: str, *settings: str) -> list[str]:
        """The command of a JobManager (`JM`) or TaskManager (`TM`) with `KEY=VALUE` settings of its own."""
        jvm, sizes = self._server[kind]
        own = [word for setting in settings for word in ("-D", setting)]
        command = self._command("server", _SERVERS[kind], *jvm, *self._more.get(kind, []))
        return [*command, *sizes, "--configDir", str(self._conf), *own]

    def client(self, *words: str) -> list[str]:
        """The command `flink WORDS`."""
        return [*self._command("client", _CLIENT, *_BRIEF), *words]

    def environment(self) -> dict[str, str]:
        """What Flink reads from the environment."""
        return environment(
            FLINK_CONF_DIR=str(self._conf),
            FLINK_LIB_DIR=str(self._lib),
            FLINK_OPT_DIR=str(self._package / "opt"),
            FLINK_PLUGINS_DIR=str(self._package / "plugins"),
            FLINK_BIN_DIR=str(self._package / "bin"),
        )

    def _command(self, role: str, program: str, *jvm: str) -> list[str]:
        jars = ":".join(sorted(map(str, self._lib.glob("*.jar"))))
        logging = f"-Dlog4j.configurationFile=file:{self._conf / f'log4j-{role}.properties'}"
        return [self._java, *self._opened, *jvm, logging, "-cp", jars, program]

    def _sizes(self, kind: str) -> tuple[list[str], list[str]]:
        """The JVM's options and Flink's, from the memory settings, by Flink's own arithmetic."""
        jars = [self._package / "bin/bash-java-utils.jar", *self._lib.glob("flink-dist-*.jar")]
        command = [self._java, *_BRIEF, "-cp", ":".join(map(str, jars)), _UTILITY]
        done = subprocess.run(
            [*command, f"GET_{kind}_RESOURCE_PARAMS", "--configDir", str(self._conf)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        results = [line.removeprefix(_RESULT) for line in done.stdout.splitlines() if line.startswith(_RESULT)]
        if done.returncode != 0 or len(results) != 2:
            said = "".join(f"\n  {line}" for line in done.stdout.splitlines()[-15:])
            raise StackError(f"flink: the settings in {self._conf / 'config.yaml'} are refused:{said}")
        jvm, sizes = results
        return shlex.split(jvm), shlex.split(sizes)
