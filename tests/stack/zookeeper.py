"""The ZooKeeper inside Flink's own jar, one node: what a JobManager needs to take over a dead one's jobs."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.stack.process import Process, free_port, require_program

_START_S = 60.0


def start_zookeeper(folder: Path, lib: Path, *, lives_on: bool) -> tuple[str, Process]:
    """A running server with its data in `folder`: its address, its process. Sessions of the dead end within 4 s."""
    java = require_program("zookeeper", "java", "openjdk-17-jre-headless")
    port = free_port()
    (folder / "data").mkdir(parents=True, exist_ok=True)
    settings = folder / "zoo.cfg"
    settings.write_text(
        f"dataDir={folder / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n"
        "minSessionTimeout=1000\nmaxSessionTimeout=60000\nadmin.enableServer=false\n",
        encoding="utf-8",
    )
    jars = [*lib.glob("flink-dist-*.jar"), *lib.glob("log4j-*.jar")]
    logging = lib.parent / "conf/log4j-server.properties"
    main = "org.apache.flink.shaded.zookeeper3.org.apache.zookeeper.server.ZooKeeperServerMain"
    command = [java, "-Xmx128m", f"-Dlog4j.configurationFile=file:{logging}"]
    command += ["-cp", ":".join(map(str, jars)), main, str(settings)]
    process = Process("zookeeper", command, folder / "zookeeper.log", lives_on=lives_on)
    process.await_ready(lambda: _answers(port), _START_S)
    return f"127.0.0.1:{port}", process


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
