"""Who a process is, put together: what the platform knows wins, what it cannot know is the process's own word."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.hello import Hello
from spanlite.agent.identity.identifier import Identifier
from spanlite.agent.identity.nvml import GpuFacts, Inventory
from spanlite.agent.identity.peer import Credentials
from spanlite.agent.identity.pods import Container
from spanlite.agent.identity.source import Source, Unavailable
from spanlite.contract import catalogue
from spanlite.contract.batch import Gpu
from spanlite.runtime.clock import ManualClock
from tests.agent.identity.test_procfs import make_process

C = "c" * 64
UID = "2b4a0d1c-5b1e-4c55-9f0a-0a1b2c3d4e5f"
POD = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{C}.scope\n"
A = "GPU-11111111-2222-3333-4444-555555555555"
MIG = "MIG-99999999-2222-3333-4444-555555555555"
PEER = Credentials(4711, 1000, 1000)
TRAIN = Container("ml", "train-0", "main", frozenset({A}))
KNOWN = Inventory("580.1", MappingProxyType({A: GpuFacts("H200", "00000000:1B:00.0", "1g.18gb", "7")}))
LIE = {"container.id": "1" * 64, "k8s.pod.uid": "lie", "process.executable.name": "init", "process.vpid": "1"}


class _Held:
    """A process that runs, or does not."""

    def __init__(self, alive: bool = True) -> None:
        self._alive = alive

    def alive(self) -> bool:
        return self._alive


class _Node:
    """An identifier with sources that answer as they are told."""

    def __init__(
        self,
        proc: Path,
        containers: Callable[[], list[Container]] = lambda: [TRAIN],
        inventory: Callable[[], Inventory] = lambda: KNOWN,
        timeout_s: float = 60,
    ) -> None:
        self.counts = AgentCounts()
        clock = ManualClock()
        self.identifier = Identifier(
            self.counts,
            containers=Source("kubelet", containers, clock, fresh_s=1),
            inventory=Source("nvml", inventory, clock, fresh_s=1),
            proc=proc,
            timeout_s=timeout_s,
        )

    def ask(
        self, resource: dict[str, str] | None = None, *, gpu: str = A, peer: Credentials = PEER, alive: bool = True
    ) -> Hello:
        said = Hello(130500, {}, 1, (Gpu(gpu, name="said"),), resource or {})
        return self.identifier.identify(said, peer, _Held(alive))  # type: ignore[arg-type]

    @property
    def outcomes(self) -> dict[str, int]:
        return self.counts.by_label(catalogue.AGENT_IDENTITIES)


def test_a_process_in_a_pod_is_what_kernel_kubelet_and_driver_say(tmp_path: Path) -> None:
    """Everything that it says of this itself is replaced; what only it can know stays."""
    make_process(tmp_path, cgroup=POD)
    node = _Node(tmp_path)
    found = node.ask(
        {**LIE, "k8s.pod.name": "bank", "k8s.namespace.name": "prod", "driver.version": "1", "workload": "w"}
    )
    assert found.resource == {
        "workload": "w",
        "process.executable.name": "python3.11",
        "process.vpid": "7",
        "process.user.id": "1000",
        "container.id": C,
        "container.runtime.name": "cri-containerd",
        "k8s.pod.uid": UID,
        "k8s.pod.name": "train-0",
        "k8s.namespace.name": "ml",
        "k8s.container.name": "main",
        "driver.version": "580.1",
        "spanlite.identity": "kernel,kubelet,nvml",
    }
    assert found.gpus == (Gpu(A, name="said", pci_bus_id="00000000:1B:00.0", mig_profile="1g.18gb", mig_instance="7"),)
    assert node.outcomes == {"pod": 1}


def test_a_process_of_the_host_cannot_say_that_it_is_in_a_container(tmp_path: Path) -> None:
    """Ids that the kernel would know are gone; the kubelet is not even asked for a process outside all pods."""
    make_process(tmp_path, cgroup="0::/user.slice/user-1000.slice/session-1.scope\n")
    node = _Node(tmp_path, containers=lambda: pytest.fail("asked"))
    found = node.ask({**LIE, "team": "x"}).resource
    assert found == {
        "team": "x",
        "k8s.pod.name": "web-0",  # of its environment: a hint, and not among what is vouched for
        "process.executable.name": "python3.11",
        "process.vpid": "7",
        "process.user.id": "1000",
        "driver.version": "580.1",
        "spanlite.identity": "kernel,nvml",
    }
    assert node.outcomes == {"host": 1}


def test_a_node_without_kubelet_and_driver_goes_on(tmp_path: Path) -> None:
    """What is missing shows as a state and in who vouches; the kernel's part is there, and hints are used."""

    def absent() -> list[Container]:
        raise Unavailable("absent", "no kubelet")

    def no_driver() -> Inventory:
        raise Unavailable("no_driver", "none")

    make_process(tmp_path, cgroup=POD)
    node = _Node(tmp_path, absent, no_driver)
    found = node.ask()
    assert found.resource["spanlite.identity"] == "kernel"
    assert found.resource["k8s.pod.uid"] == UID
    assert found.resource["k8s.pod.name"] == "web-0"
    assert found.gpus == (Gpu(A, name="said"),)
    assert node.identifier.gauges() == {
        catalogue.AGENT_IDENTITY_SOURCE.name: [
            ({"source": "kubelet", "state": "absent"}, 1.0),
            ({"source": "nvml", "state": "no_driver"}, 1.0),
        ]
    }


def test_a_slurm_job_is_the_kernels_and_its_name_a_hint(tmp_path: Path) -> None:
    """Job and step by the control group, not by the environment; the name by that, as nothing else has it."""
    folder = make_process(tmp_path, cgroup="0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n")
    (folder / "environ").write_bytes(b"SLURM_JOB_ID=1\0SLURM_JOB_NAME=train\0")
    node = _Node(tmp_path)
    found = node.ask({"slurm.job.id": "2"}).resource
    assert (found["slurm.job.id"], found["slurm.step.id"], found["slurm.job.name"]) == ("123", "0", "train")
    assert node.outcomes == {"slurm": 1}


def test_where_the_kernel_cannot_tell_the_job_its_environment_does(tmp_path: Path) -> None:
    """A Slurm without control groups."""
    folder = make_process(tmp_path)
    (folder / "environ").write_bytes(b"SLURM_JOB_ID=1\0SLURM_STEP_ID=4\0")
    found = _Node(tmp_path).ask().resource
    assert (found["slurm.job.id"], found["slurm.step.id"]) == ("1", "4")


@pytest.mark.parametrize(
    ("peer", "alive", "outcome"),
    [
        (Credentials(0, 1000, 1000), True, "hidden"),  # of a pid namespace that the agent does not see
        (Credentials(99, 1000, 1000), True, "gone"),
        (PEER, False, "gone"),  # the number is there, but is it still that process?
    ],
)
def test_a_process_that_cannot_be_looked_at_is_what_it_says(
    tmp_path: Path, peer: Credentials, alive: bool, outcome: str
) -> None:
    """And it is told that only the kubelet, by its GPUs, and the driver vouch for it."""
    make_process(tmp_path, cgroup=POD)
    node = _Node(tmp_path)
    found = node.ask({"container.id": "1" * 64}, peer=peer, alive=alive).resource
    assert found["container.id"] == "1" * 64
    assert found["k8s.pod.name"] == "train-0"
    assert found["spanlite.identity"] == "kubelet,nvml"
    assert node.outcomes == {outcome: 1}


def test_gpus_that_the_driver_does_not_list_are_counted(tmp_path: Path) -> None:
    """They stay as they were said: records must not lose their GPU."""
    make_process(tmp_path)
    node = _Node(tmp_path)
    assert node.ask(gpu="GPU-invented").gpus == (Gpu("GPU-invented", name="said"),)
    assert node.counts.value(catalogue.AGENT_GPUS_UNVERIFIED) == 1


def test_a_source_that_hangs_costs_so_long_and_no_more(tmp_path: Path) -> None:
    """A driver in trouble: the process is what it says, and its spans go on."""
    ended = threading.Event()

    def hang() -> Inventory:
        ended.wait(60)
        raise Unavailable("failed", "late")

    make_process(tmp_path, cgroup=POD)
    node = _Node(tmp_path, inventory=hang, timeout_s=0.05)
    found = node.ask({"workload": "w"})
    assert found.resource == {"workload": "w", "process.user.id": "1000", "spanlite.identity": "none"}
    assert node.outcomes == {"timeout": 1}
    ended.set()


def test_a_long_hint_is_cut(tmp_path: Path) -> None:
    """Batches repeat the resource: an environment cannot make them large, nor have them refused."""
    folder = make_process(tmp_path)
    (folder / "environ").write_bytes(b"OTEL_SERVICE_NAME=" + b"x" * 9999 + b"\0")
    assert _Node(tmp_path).ask().resource["service.name"] == "x" * 256
