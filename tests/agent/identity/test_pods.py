"""Which container a process belongs to, by its GPUs."""

from __future__ import annotations

import pytest

from spanlite.agent.identity.pods import Container, gpu_uuids, owner

A = "GPU-11111111-2222-3333-4444-555555555555"
B = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
MIG = "MIG-99999999-2222-3333-4444-555555555555"


def test_uuids_are_found_within_the_ids_of_device_plugins() -> None:
    """Bare, of a shared GPU, by CDI, of drivers before R470; names without one give none."""
    old = f"MIG-{A}/7/0"
    ids = [A, f"{B}::3", f"k8s.device-plugin.nvidia.com/gpu={MIG}", old, "nvidia0", "gpu-1", "GPU-short"]
    assert gpu_uuids(ids) == {A, B, MIG, old}


def container(pod: str, *gpus: str, name: str = "main", namespace: str = "ml") -> Container:
    return Container(namespace, pod, name, frozenset(gpus))


@pytest.mark.parametrize(
    ("gpus", "hinted", "pod"),
    [
        ([A], {}, "one"),
        ([A, B], {}, "one"),
        ([MIG], {}, None),  # shared by two, and nothing to choose by
        ([MIG], {"k8s.pod.name": "three"}, "three"),
        ([MIG], {"k8s.pod.name": "three", "k8s.namespace.name": "other"}, None),
        ([MIG], {"HOSTNAME": "two"}, "two"),
        ([MIG], {"k8s.pod.name": "one"}, None),  # it has not got that GPU
        ([A], {"k8s.pod.name": "three", "HOSTNAME": "three"}, "one"),  # what a process says moves it nowhere
        (["GPU-unheard-of"], {}, None),
        ([A, MIG], {}, None),
        ([], {}, None),
    ],
)
def test_gpus_decide_and_hints_only_choose(gpus: list[str], hinted: dict[str, str], pod: str | None) -> None:
    """A lie cannot name a container that lacks the process's GPUs."""
    node = [container("one", A, B), container("two", MIG), container("three", MIG), container("idle")]
    found = owner(node, gpus, hinted)
    assert (found.pod if found else None) == pod


def test_two_containers_of_one_pod_are_told_apart_by_name() -> None:
    """Both share a GPU: the container's name chooses, and without it neither is taken."""
    node = [container("one", A, name="main"), container("one", A, name="side")]
    said = {"k8s.pod.name": "one", "k8s.container.name": "side"}
    assert owner(node, [A], said) == node[1]
    assert owner(node, [A], {"k8s.pod.name": "one"}) is None


def test_a_long_pod_name_is_its_hosts_name_cut() -> None:
    """A host's name has 63 characters at most, and ends in none that separates."""
    long = "a" * 62 + "-b"
    node = [container(long, A), container("other", A)]
    assert owner(node, [A], {"HOSTNAME": "a" * 62}) == node[0]
