"""Which pod a process belongs to, by the GPUs that the kubelet gave to whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_UUID = re.compile(
    r"(?:GPU|MIG)-(?:GPU-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?:/\d+/\d+)?", re.IGNORECASE
)
"""As NVML spells them, and MIG-GPU-UUID/GI/CI of drivers before R470."""


class Container(NamedTuple):
    """A container to which the kubelet gave devices.

    Attributes:
        gpus: UUIDs of whole GPUs and MIG instances, each once.
    """

    namespace: str
    pod: str
    name: str
    gpus: frozenset[str]


def gpu_uuids(device_ids: Iterable[str]) -> frozenset[str]:
    """UUIDs within the ids that device plugins and CDI use: bare, `UUID::3` of a shared GPU, `nvidia.com/gpu=UUID`."""
    return frozenset(found[0] for one in device_ids if (found := _UUID.search(one)))


def owner(containers: Iterable[Container], gpus: Iterable[str], hinted: Mapping[str, str]) -> Container | None:
    """The container that a process with these GPUs runs in; None where several could be, or none.

    Args:
        containers: of the whole node.
        gpus: UUIDs that the process named, all of which its container must have.
        hinted: k8s.pod.name, k8s.namespace.name and k8s.container.name as the process says, and `HOSTNAME`, which is
            the pod's name by default. They only choose among containers that have the GPUs: several, where a GPU is
            shared.
    """
    wanted = frozenset(gpus)
    if not wanted:
        return None
    fitting = [one for one in containers if wanted <= one.gpus]
    for narrow in (_by_name, _by_host):
        if len(fitting) > 1:
            fitting = list(narrow(fitting, hinted)) or fitting
    return fitting[0] if len(fitting) == 1 else None


def _by_name(containers: list[Container], hinted: Mapping[str, str]) -> Iterator[Container]:
    said = (hinted.get("k8s.namespace.name"), hinted.get("k8s.pod.name"), hinted.get("k8s.container.name"))
    for one in containers:
        pairs = zip(said, (one.namespace, one.pod, one.name), strict=True)
        if said[1] and all(word in (None, "", name) for word, name in pairs):
            yield one


def _by_host(containers: list[Container], hinted: Mapping[str, str]) -> Iterator[Container]:
    said = hinted.get("HOSTNAME")
    for one in containers:
        if said and one.pod[:63].rstrip("-.") == said:  # a host's name has 63 characters at most
            yield one
