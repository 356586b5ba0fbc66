"""`spanlite agent` as a process, with no broker: identities, health, bounds, OTLP, and the end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import DONE, Frame, pack_frame, pack_text
from spanlite.agent.recording import read_recording
from spanlite.agent.spool.settings import SpoolSettings
from spanlite.agent.spool.spool import Spool
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch
from spanlite.contract.columns import SamplingMode
from spanlite.runtime.settings import inherited
from tests.agent.identity.kubelets import kubelet, listing
from tests.agent.otlp_receiver import plain, receiver
from tests.agent.playing import HELLO
from tests.agent.records import kernel
from tests.agent.spool.items import drain
from tests.agent.waiting import until
from tests.cli.process import refused, spanlite

_RECORDING = Path(__file__).parents[1] / "data" / "h200" / "serve-cupti130500.bin.xz"
_DEAD = "127.0.0.1:1"
"""A broker that refuses every connection."""
_STARTED: list[subprocess.Popen[bytes]] = []


class Agent:
    """The command as a process that listens."""

    def __init__(self, folder: Path, *words: str | Path, before: Sequence[str] = (), **environment: str) -> None:
        self.folder = folder
        self.socket = folder / "agent.sock"
        self._log = folder / "agent.log"
        self._apart = bool(before)
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "spanlite",
            "agent",
            "--socket",
            self.socket,
            "--spool",
            folder / "spool",
        ]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*before, *command, "--bootstrap", _DEAD, "--metrics-port", "0", *words],
                stderr=log,
                env={**inherited(), **environment},
            )
        _STARTED.append(self.process)
        until(lambda: "metrics: " in self.said() or self.process.poll() is not None)
        found = re.search(r"metrics: (http://127\.0\.0\.1:\d+)/metrics", self.said())
        assert found is not None, self.said()
        self.url = found[1]

    def said(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:  # noqa: S310  # of this machine
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> str:
        return self.get("/metrics")[1]

    def feed(self, *words: str) -> None:
        done = spanlite("feed", _RECORDING, "--socket", self.socket, *words)
        assert done.returncode == 0, done.stderr

    def end(self) -> int:
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(children[0]) if self._apart else pid, signal.SIGTERM)
        return self.process.wait(60)

    def batches(self) -> list[Batch]:
        """What waits in the spool of an agent that has ended."""
        spool = Spool(self.folder / "spool", AgentCounts(), SpoolSettings())
        found = [decode_batch(one.value) for one in drain(spool)]
        spool.close()
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose agents are ended with the test."""
    yield tmp_path
    for process in _STARTED:
        process.kill()
        process.wait()
    _STARTED.clear()


def test_identity_is_the_platforms(folder: Path) -> None:
    """A feeder in no pod: its program and pids by the kernel, in every batch; what is missing shows as a state."""
    agent = Agent(folder, "--kubelet-socket", folder / "none")
    agent.feed()
    told = agent.metrics()
    assert re.search(r'spanlite_agent_identities_total\{outcome="(host|container|pod|slurm)"\} 1\.0', told)
    assert re.search(r'spanlite_agent_identity_source_info\{source="nvml",state="(no_driver|ok)"\} 1\.0', told)
    assert "spanlite_agent_collectors" in told or "spanlite_agent_frame_memory_bytes 0.0" in told
    assert agent.end() == 0
    resources = [batch.resource for batch in agent.batches()]
    assert resources
    for resource in resources:
        assert resource["process.executable.name"] == Path(sys.executable).resolve().name
        assert resource["process.user.id"] == str(os.getuid())
        assert resource["process.vpid"] == resource["process.pid"]
        assert resource["spanlite.identity"].startswith("kernel")
        assert resource["workload"] == read_recording(_RECORDING).scenario


def test_without_identity_a_process_is_what_it_says(folder: Path) -> None:
    """The way back to a process's own word."""
    agent = Agent(folder, "--identity", "none")
    agent.feed()
    assert "spanlite_agent_identit" not in agent.metrics()
    assert agent.end() == 0
    keys = {key for batch in agent.batches() for key in batch.resource}
    assert keys == {"cupti.version", "host.name", "process.pid", "workload"}


def test_health_tells_a_stall_from_life(folder: Path) -> None:
    """With Kafka away the agent is alive; ready until batches have waited too long, then not, with the reason."""
    agent = Agent(folder, "--stall-limit", "200ms", "--identity", "none")
    assert agent.get("/healthz") == (200, '{"alive": true}\n')
    status, body = agent.get("/readyz")
    assert (status, json.loads(body)["ready"]) == (200, True)
    agent.feed()
    until(lambda: agent.get("/readyz")[0] == 503)
    checks = json.loads(agent.get("/readyz")[1])["checks"]
    assert checks["socket"] == checks["spool"] == checks["metrics"] == {"ok": True}
    assert "batches wait and none was delivered" in checks["kafka"]["reason"]
    assert agent.get("/healthz")[0] == 200
    agent.socket.rename(folder / "moved")
    assert "is gone" in json.loads(agent.get("/readyz")[1])["checks"]["socket"]["reason"]
    assert agent.end() == 0


def test_settings_come_from_flag_environment_and_file(folder: Path) -> None:
    """A span quota by the environment beats the file's; the flag beats both: what is over is dropped and exit is 3."""
    (folder / "agent.toml").write_text("[agent]\npeer-spans = 1000000000\nidentity = 'none'\nuid-rate = 7\n")
    environment = {"SPANLITE_CONFIG": str(folder / "agent.toml"), "SPANLITE_AGENT_PEER_SPANS": "1"}
    agent = Agent(folder, **environment)
    agent.feed("--speed", "1000")  # in frames of 1 MiB, of which one passes
    told = agent.metrics()
    dropped = re.search(r'spanlite_agent_spans_dropped_total\{reason="quota"\} (\S+)', told)
    received = re.search(r"spanlite_agent_spans_received_total ([0-9]\S*)", told)
    waiting = re.search(r"spanlite_agent_spool_spans ([0-9]\S*)", told)
    assert dropped
    assert received
    assert waiting
    assert float(received[1]) == float(dropped[1]) + float(waiting[1])
    assert "identit" not in told
    assert agent.end() == 3
    agent = Agent(folder, "--peer-spans", "0", "--spool", folder / "spool-b", **environment)
    agent.feed()
    assert 'reason="quota"' not in agent.metrics()
    assert agent.end() == 0


def test_a_second_agent_names_the_first(folder: Path) -> None:
    """One line with its pid; the first goes on, and a killed one is no obstacle."""
    first = Agent(folder, "--identity", "none")
    words = ("agent", "--socket", first.socket, "--spool", folder / "b", "--bootstrap", _DEAD, "--metrics-port", "0")
    refused(spanlite(*words), f"another agent, process {first.process.pid}, serves this node")
    assert first.get("/readyz")[0] == 200
    first.process.kill()
    first.process.wait()
    second = Agent(folder, "--identity", "none")
    assert second.end() == 0


def test_a_share_of_the_traces_is_kept_and_the_rest_counted(folder: Path) -> None:
    """Of 24 requests those whose ids say so, whole, three times as heavy; what is left out is no loss."""
    agent = Agent(folder, "--sample-traces", "3", "--identity", "none")
    agent.feed()
    told = agent.metrics()
    assert agent.end() == 0
    received, out = (
        float(found[1])
        for name in ("received", "sampled_out")
        if (found := re.search(rf"spanlite_agent_spans_{name}_total ([0-9]\S*)", told))
    )
    batches = agent.batches()
    assert received == out + sum(len(batch.columns) for batch in batches)
    assert f"{int(out)} of traces that are not sampled" in agent.said()
    assert {batch.sampling for batch in batches} == {SamplingMode.TRACES}
    traces = {bytes(one) for batch in batches for one in batch.columns.traces["id"]}
    assert 0 < len(traces) < 24
    for batch in batches:
        assert batch.columns.weight.tolist() == np.where(batch.columns.trace >= 0, 3, 1).tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--identity", "kubelet"], "kernel is missing"),
        (["--identity", "kernel,dns"], "'dns' is no source of identities"),
        (["--peer-bytes", "many"], "'many' is no size"),
        (["--peer-spans", "-1"], "-1"),
        (["--uid-connections", "0"], "at least 1"),
        (["--stall-limit", "soon"], "'soon' is no duration"),
        (["--sample-traces", "0"], "at least 1"),
        (["--sample-traces", "65537"], "one trace in 65537 cannot be kept"),
        (["--socket-group", "no-such-group-here"], "there is no group 'no-such-group-here'"),
        (["--otlp-endpoint", "localhost:4317"], "no endpoint"),
    ],
)
def test_flags_that_are_off_are_refused(tmp_path: Path, words: list[str], said: str) -> None:
    """Before anything listens."""
    start = ("agent", "--socket", tmp_path / "s", "--spool", tmp_path / "spool", "--metrics-port", "0")
    refused(spanlite(*start, *words), said)
    assert not (tmp_path / "s").exists()


def test_a_pod_of_a_process_that_hides_is_found_by_its_gpu(folder: Path) -> None:
    """An agent in a pid namespace of its own sees no pid of the feeder's: the kubelet knows whose its GPU is."""
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*apart, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no pid namespaces here")
    gpu = "GPU-11111111-2222-3333-4444-555555555555"
    devices = [{"resource_name": "nvidia.com/gpu", "device_ids": [gpu]}]
    pods = [{"name": "p", "namespace": "n", "containers": [{"name": "c", "devices": devices}]}]
    answer = listing(folder, pods)
    with kubelet(folder / "kubelet.sock", lambda _: answer):
        agent = Agent(folder, "--kubelet-socket", folder / "kubelet.sock", before=apart)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.connect(str(agent.socket))
            peer.sendall(pack_frame(Frame.HELLO, pack_text({**HELLO, "gpu.0.uuid": gpu, "gpu.1.uuid": gpu}), 0))
            peer.sendall(pack_frame(Frame.BUFFER, kernel(10, 15, 1), 1) + pack_frame(Frame.BYE, b"", 2))
            assert peer.recv(1) == DONE
        told = agent.metrics()
        assert agent.end() == 0
    assert 'spanlite_agent_identities_total{outcome="hidden"} 1.0' in told
    assert 'spanlite_agent_identity_source_info{source="kubelet",state="ok"} 1.0' in told
    (batch,) = agent.batches()
    names = [batch.resource[f"k8s.{what}.name"] for what in ("namespace", "pod", "container")]
    assert (names, batch.resource["spanlite.identity"]) == (["n", "p", "c"], "kubelet")


def test_metrics_and_spans_go_to_a_receiver_of_otlp(folder: Path) -> None:
    """By OTEL_EXPORTER_OTLP_ENDPOINT: counters as on /metrics, a span for start and connection, and for the replay."""
    with receiver() as received:
        for turn in range(2):
            agent = Agent(folder, OTEL_EXPORTER_OTLP_ENDPOINT=received.url, OTEL_RESOURCE_ATTRIBUTES="cell=7")
            if turn == 0:
                agent.feed()
            assert agent.end() == 0
        names = [span.name for span in received.spans()]
        (connection,) = [plain(span.attributes) for span in received.spans() if span.name == "connection"]
        counted = received.metrics[0]
        resource = plain(counted.resource_metrics[0].resource.attributes)
        spool = received.points("spanlite_agent_spool_spans")
    assert sorted(names) == ["connection", "spool replay", "start", "start"]
    assert connection["process.user.id"] == os.getuid()
    assert (resource["service.name"], resource["cell"]) == ("spanlite-agent", "7")
    assert spool == {(): 61_266.0}
