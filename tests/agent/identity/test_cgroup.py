"""Control-group paths as runtimes, kubelets and Slurm write them: who is in the container, and who only says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.identity.cgroup import Placement, placement

C = "8f4c1e" + "0123456789abcdef" * 3 + "0123456789"
"""A container's id, 64 digits."""
D = "d" * 64
UID = "2b4a0d1c-5b1e-4c55-9f0a-0a1b2c3d4e5f"
UID_ = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"


def test_the_ids_are_of_the_length_that_runtimes_give() -> None:
    """A shorter one would make every test below pass for nothing."""
    assert (len(C), len(D), len(STATIC)) == (64, 64, 32)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # Kubernetes, systemd driver: containerd, CRI-O, its crun form, dockershim; the three classes of service.
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{C}.scope",
            Placement(C, "cri-containerd", UID),
        ),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/crio-{C}.scope",
            Placement(C, "crio", UID),
        ),
        (f"/kubepods.slice/kubepods-pod{UID_}.slice/crio-{C}.scope/container", Placement(C, "crio", UID)),
        (f"/kubepods.slice/kubepods-pod{UID_}.slice/docker-{C}.scope", Placement(C, "docker", UID)),
        # cgroupfs driver.
        (f"/kubepods/burstable/pod{UID}/{C}", Placement(C, "", UID)),
        (f"/kubepods/pod{UID}/crio-{C}", Placement(C, "crio", UID)),
        (f"/kubepods/besteffort/pod{STATIC}/{C}", Placement(C, "", STATIC)),
        # systemd's names under a manager without it.
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{C}",
            Placement(C, "cri-containerd", UID),
        ),
        (f"/kubepods-pod{UID_}.slice:cri-containerd:{C}", Placement(C, "cri-containerd", UID)),
        # The pod's own folder, and CRI-O's monitor: in the pod, in no container.
        (f"/kubepods.slice/kubepods-pod{UID_}.slice", Placement("", "", UID)),
        (f"/kubepods.slice/kubepods-pod{UID_}.slice/crio-conmon-{C}.scope", Placement("", "", UID)),
        # kind: a node that is a container itself.
        (
            f"/docker/{D}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID_}.slice/cri-containerd-{C}.scope",
            Placement(C, "cri-containerd", UID),
        ),
        (f"/docker/{D}/kubelet/kubepods/besteffort/pod{UID}/{C}", Placement(C, "", UID)),
        # An agent in a pod sees the others from its own control group.
        (f"/../../kubepods-pod{UID_}.slice/cri-containerd-{C}.scope", Placement(C, "cri-containerd", UID)),
        (f"/../../pod{UID}/{C}", Placement(C, "", UID)),
        (f"/../cri-containerd-{C}.scope", Placement(C, "cri-containerd", "")),
        # Without Kubernetes.
        (f"/system.slice/docker-{C}.scope", Placement(C, "docker", "")),
        (f"/docker/{C}", Placement(C, "docker", "")),
        (f"/docker/{C}/docker/{D}", Placement(C, "docker", "")),
        (f"/machine.slice/libpod-{C}.scope", Placement(C, "libpod", "")),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{C}.scope/container",
            Placement(C, "libpod", ""),
        ),
        (f"/libpod_parent/libpod-{C}", Placement(C, "libpod", "")),
        (f"/machine.slice/libpod-conmon-{C}.scope", Placement()),
        (f"/system.slice/nerdctl-{C}.scope", Placement(C, "nerdctl", "")),
        (f"/ecs/0f1e2d3c4b5a/{C}", Placement(C, "", "")),
        # The host.
        ("/", Placement()),
        ("/user.slice/user-1000.slice/session-3.scope", Placement()),
        ("/system.slice/docker.service", Placement()),
        # Slurm, version 2; one of several slurmd on a host; batch step; the job's own folder.
        ("/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", Placement(slurm_job="123", slurm_step="0")),
        (
            "/system.slice/node7_slurmstepd.scope/job_9/step_batch/user/task_0",
            Placement(slurm_job="9", slurm_step="batch"),
        ),
        ("/system.slice/slurmstepd.scope/job_123", Placement(slurm_job="123")),
        # Version 1.
        ("/slurm/uid_1000/job_4242/step_extern/task_0", Placement(slurm_job="4242", slurm_step="extern")),
        ("/slurm_node7/uid_1000/job_4242/step_3", Placement(slurm_job="4242", slurm_step="3")),
    ],
)
def test_a_path_tells_where_the_process_runs(path: str, expected: Placement) -> None:
    """Proves each documented form, on version 2 and on version 1 as the controller of memory."""
    assert placement(f"0::{path}\n") == expected
    assert placement(f"12:pids:/\n4:memory:{path}\n1:name=systemd:/init.scope\n") == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # A pod that may make control groups nests folders that look like another container, pod, job.
        (
            f"/kubepods/pod{UID}/{C}/kubepods/pod{STATIC}/{D}",
            Placement(C, "", UID),
        ),
        (f"/docker/{C}/system.slice/slurmstepd.scope/job_1/step_0", Placement(C, "docker", "")),
        (f"/user.slice/user-1000.slice/user@1000.service/pod{UID}/job_1/step_0", Placement()),
        (f"/user.slice/slurm/uid_0/job_7/step_0/pod{UID}", Placement()),
    ],
)
def test_what_a_process_may_make_itself_is_not_believed(path: str, expected: Placement) -> None:
    """Proves that folders further in cannot replace an identity that stands further out."""
    assert placement(f"0::{path}\n") == expected


def test_the_first_hierarchy_that_knows_a_container_counts() -> None:
    """Proves hybrid hosts: version 2 is at the root, systemd's has a session, memory has the container."""
    text = (
        f"0::/\n13:name=systemd:/user.slice/user-0.slice/session-1.scope\n8:memory:/docker/{C}\n"
        f"7:devices:/docker/{D}\n5:cpu,cpuacct:/slurm/uid_1/job_5/step_1/task_0\n"
    )
    assert placement(text) == Placement(C, "docker", "", "5", "1")


def test_a_hierarchy_that_nobody_ranks_is_read_as_well() -> None:
    """Proves version 1 without the usual controllers mounted."""
    assert placement(f"2:rdma:/docker/{C}\n") == Placement(C, "docker", "")


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_no_text_is_too_strange(text: str) -> None:
    """Whatever a kernel writes, there is an answer, and no id that the text does not hold."""
    found = placement(text)
    assert found.container_id in text
    assert found.slurm_job in text
