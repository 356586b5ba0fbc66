"""Container, pod and Slurm job of a process by its control groups, as runtimes and Slurm name their folders.

    0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope
    0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0

Folders are made by whoever owns the one above. So what stands further out counts, which the node's runtime made: of
nested containers the outermost; of those inside a pod the pod's own. A container that may make control groups can
therefore not choose another identity, unless nothing outside it names one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_CONTAINER = re.compile(
    r"(?:(?P<runtime>docker|cri-containerd|containerd|crio|libpod|libpod-payload|nerdctl|podman)-)?"
    r"(?P<id>[0-9a-f]{64})(?:\.scope)?"
)
"""A folder of a container. `crio-conmon-…` and `libpod-conmon-…` hold its monitor, not it, and do not match."""
_JOINED = re.compile(r"(?P<slice>[^:]+):(?P<runtime>[^:]+):(?P<id>[0-9a-f]{64})")
"""slice:runtime:id in one folder: a runtime with systemd's names under a manager without."""
_POD = re.compile(
    r"(?:.*-)?pod(?P<uid>[0-9a-f]{8}([-_])[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
)
"""A pod's folder; systemd has _ for - in the uid, and pods out of a file on the node have a hash."""
_PARENTS = {"docker": "docker", "lxc": "lxc", "libpod_parent": "libpod", "crio": "crio"}
_SLURM = re.compile(
    r"/(?:slurm(?:_[^/]+)?/uid_\d+|system\.slice/(?:[^/]+_)?slurmstepd\.scope)/job_(?P<job>\d+)(?:/step_(?P<step>\w+))?"
)
_ORDER = ("", "memory", "devices", "pids", "cpu", "name=systemd")
"""Hierarchies in the order in which they are believed; "" is version 2."""


class Placement(NamedTuple):
    """Where a process runs; empty where its control groups do not say.

    Attributes:
        container_id: 64 hexadecimal digits.
        runtime: as the folder names it: docker, cri-containerd, crio, libpod, …; often empty.
        pod_uid: with dashes, as Kubernetes writes it.
        slurm_job, slurm_step: `123` and `0`, `batch`, `extern`, `interactive`.
    """

    container_id: str = ""
    runtime: str = ""
    pod_uid: str = ""
    slurm_job: str = ""
    slurm_step: str = ""


def placement(text: str) -> Placement:
    """What `/proc/PID/cgroup` says, version 1, 2 or both at once.

    Of several hierarchies the first (in a fixed order) that names a container or pod counts, and likewise for Slurm:
    on hybrid hosts some of them stay at the root.
    """
    paths = list(_paths(text))
    contained = next((found for found in map(_contained, paths) if found.container_id or found.pod_uid), Placement())
    for path in paths:
        slurm = _SLURM.match(path)
        if slurm:
            return contained._replace(slurm_job=slurm["job"], slurm_step=slurm["step"] or "")
    return contained


def _paths(text: str) -> Iterator[str]:
    """Paths of the hierarchies, the most believed first."""
    by_controller: dict[str, str] = {}
    for line in text.splitlines():
        _number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            by_controller[controller] = path
    known = [by_controller.pop(controller) for controller in _ORDER if controller in by_controller]
    yield from (*known, *by_controller.values())


def _contained(path: str) -> Placement:
    segments = path.split("/")
    for at, segment in enumerate(segments):
        joined = _JOINED.fullmatch(segment)
        if joined:
            pod = _pod_uid(joined["slice"], segments[:at])
            if pod:
                return Placement(joined["id"], joined["runtime"], pod)
        pod = _pod_uid(segment, segments[:at])
        if pod:
            return _first_container(segments[at + 1 :])._replace(pod_uid=pod)
    return _first_container(segments)


def _pod_uid(segment: str, above: list[str]) -> str:
    """The uid that a folder names, if it or one above belongs to the kubelet.

    An agent in a pod may see the others from its own control group, as `/../../podUID/ID`: what the kubelet's folder
    is called is above what it sees.
    """
    found = _POD.fullmatch(segment)
    if not found or not any("kubepods" in one or one == ".." for one in (*above, segment)):
        return ""
    return found["uid"].replace("_", "-")


def _first_container(segments: list[str]) -> Placement:
    for at, segment in enumerate(segments):
        found = _CONTAINER.fullmatch(segment) or _JOINED.fullmatch(segment)
        if found:
            above = segments[at - 1] if at else ""
            return Placement(found["id"], found["runtime"] or _PARENTS.get(above, ""))
    return Placement()
