"""The folder that a Flink cluster runs from: settings, class path, logs and checkpoints, apart from PyFlink's own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.stack.jars import jars
from tests.stack.process import StackError

_LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = Console
logger.kafka.name = org.apache.kafka.clients
logger.kafka.level = WARN
logger.kafka_shaded.name = org.apache.flink.kafka.shaded.org.apache.kafka
logger.kafka_shaded.level = WARN
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %-5p %c{{1}} - %m%n
"""
# Small, on loopback, prompt to notice a death and to go on.
_DEFAULTS = {
    "jobmanager.bind-host": "127.0.0.1",
    "jobmanager.rpc.address": "127.0.0.1",
    "jobmanager.memory.process.size": "768m",
    "jobmanager.memory.jvm-overhead.min": "96m",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "taskmanager.memory.process.size": "1728m",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.task.off-heap.size": "128m",
    "taskmanager.memory.network.max": "96m",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "heartbeat.interval": "2000",
    "heartbeat.timeout": "10000",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "1 s",
    "execution.checkpointing.interval": "5 s",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}


def pyflink(venv: Path) -> Path:
    """The folder of the pyflink package in a virtual environment; StackError when it is not there."""
    found = sorted(venv.glob("lib/python3.*/site-packages/pyflink"))
    if not found:
        raise StackError(f"flink: no PyFlink in {venv}; run: make flink-venv")
    return found[-1].resolve()


def opened_modules(package: Path) -> str:
    """The options that open modules of JDK 17 to Flink, as PyFlink's own settings list them."""
    shipped = package / "conf/config.yaml"
    for line in shipped.read_text("utf-8").splitlines():
        key, _, value = line.strip().partition(": ")
        if key == "all":
            return value
    raise StackError(f"flink: no env.java.opts.all in {shipped}")


def search_path(python: Path) -> str:
    """Where this interpreter finds installed packages, those of editable installs too, joined by colons.

    Flink's thread mode embeds an interpreter that reads no `.pth` file, so it must be told every folder.
    """
    code = "import json, sys; print(json.dumps([p for p in sys.path if p and not p.startswith(sys.base_prefix + '/')]))"
    done = subprocess.run([python, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    folders: list[str] = json.loads(done.stdout)
    return ":".join(folders)


def lay_out(folder: Path, venv: Path, settings: Mapping[str, str]) -> None:
    """Makes `folder`/{conf,lib,log,tmp,checkpoints,savepoints}; the keys of `settings` win over the defaults."""
    package, python = pyflink(venv), venv / "bin/python"
    for name in ("conf", "lib", "log", "tmp", "checkpoints", "savepoints"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for jar in (*package.glob("lib/*.jar"), *package.glob("opt/flink-python-*.jar"), *jars("flink")):
        link = folder / "lib" / jar.name
        link.unlink(missing_ok=True)
        link.symlink_to(jar)
    for name, level in (("server", "INFO"), ("client", "WARN")):
        (folder / f"conf/log4j-{name}.properties").write_text(_LOGGING.format(level=level), encoding="utf-8")
    keys = {
        **_DEFAULTS,
        "env.java.opts.all": opened_modules(package),
        "io.tmp.dirs": str(folder / "tmp"),
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.savepoint-dir": (folder / "savepoints").as_uri(),
        "python.executable": str(python),
        "python.client.executable": str(python),
        "python.pythonpath": search_path(python),
        **settings,
    }
    lines = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in keys.items())
    (folder / "conf/config.yaml").write_text(lines, encoding="utf-8")
