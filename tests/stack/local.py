"""The local cluster as daemons: `python -m tests.stack.local up|down`, for `make stack` and `make stack-down`."""

# ruff: noqa: T201  # a command prints

from __future__ import annotations

import argparse
import json
import socket
import sys
from pathlib import Path

from tests.stack.daemons import Daemon, load, save
from tests.stack.flink import Flink
from tests.stack.jars import ROOT, STACK
from tests.stack.kafka import Kafka
from tests.stack.process import Process, StackError, require_port, require_program

_RUN = STACK / "run"
_STATE = _RUN / "daemons.json"
_METRICS = "127.0.0.1:9464"
_SLOTS = 4
_PARTS = ("kafka", "flink", "prometheus")


def start_kafka(folder: Path, port: int) -> list[int]:
    """The broker's process."""
    broker = Kafka(folder, port=port, lives_on=True)
    broker.start()
    return [broker.pid]


def start_flink(folder: Path, port: int) -> list[int]:
    """JobManager and one TaskManager."""
    cluster = Flink(folder, venv=ROOT / "build/venv-flink", slots=_SLOTS, rest_port=port, lives_on=True)
    cluster.start()
    return [process.pid for process in (*cluster.taskmanagers, cluster.jobmanager) if process is not None]


def start_prometheus(folder: Path, port: int) -> list[int]:
    """A server that scrapes spanlite's exporter each second, native histograms included."""
    program = require_program("prometheus", "prometheus", "prometheus")
    require_port("prometheus", port, "stop what listens there or choose another port")
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "spanlite", "static_configs": [{"targets": [_METRICS]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=native-histograms",
    ]
    process = Process("prometheus", command, folder / "prometheus.log", lives_on=True)
    process.await_ready(lambda: _listens(port), 60)
    return [process.pid]


def up(ports: dict[str, int]) -> None:
    """Starts what does not run, and prints where all is; what runs keeps its port."""
    daemons = load(_STATE)
    start = {"kafka": start_kafka, "flink": start_flink, "prometheus": start_prometheus}
    for part in _PARTS:
        running = [daemon for daemon in daemons if daemon.part == part]
        if len(running) == (2 if part == "flink" else 1):
            print(f"{part} runs already")
            continue
        for daemon in running:  # half of Flink
            daemon.stop()
            daemons.remove(daemon)
        print(f"starting {part}", flush=True)
        daemons += [Daemon.of(part, ports[part], pid) for pid in start[part](_RUN / part, ports[part])]
        save(_STATE, daemons)
    print(table({daemon.part: daemon.port for daemon in daemons}))


def down() -> None:
    """Stops what `up` started, data and logs stay."""
    daemons = load(_STATE)
    for part in reversed(_PARTS):
        for daemon in daemons:
            if daemon.part == part:
                daemon.stop()
                print(f"stopped {part}, process {daemon.pid}")
    if not daemons:
        print("nothing runs")
    _STATE.unlink(missing_ok=True)


def table(ports: dict[str, int]) -> str:
    """A line for each server at its port: address, what to do with it, its log."""
    rows = [
        ("kafka", f"127.0.0.1:{ports['kafka']}", "bootstrap servers", "kafka/kafka.log"),
        ("flink", f"http://127.0.0.1:{ports['flink']}", f"web page and REST, {_SLOTS} slots", "flink/log/*.log"),
        (
            "prometheus",
            f"http://127.0.0.1:{ports['prometheus']}",
            f"scrapes {_METRICS} each second",
            "prometheus/prometheus.log",
        ),
    ]
    run = _RUN.relative_to(ROOT)
    return "\n".join(f"{name:<12}{address:<26}{what:<36}{run / log}" for name, address, what, log in rows)


def main() -> None:
    """Exit code 1 with the reason on stderr when a part could not be started; those that were go on."""
    parser = argparse.ArgumentParser(prog="python -m tests.stack.local", description=__doc__)
    parser.add_argument("verb", choices=("up", "down"))
    for part, port in zip(_PARTS, (9092, 8081, 9090), strict=True):
        parser.add_argument(f"--{part}-port", type=int, default=port)
    chosen = vars(parser.parse_args())
    try:
        if chosen["verb"] == "down":
            down()
        else:
            up({part: chosen[f"{part}_port"] for part in _PARTS})
    except StackError as failure:
        sys.exit(f"stack: {failure}")


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    main()
