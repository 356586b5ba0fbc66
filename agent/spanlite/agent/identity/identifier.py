"""Puts together who a traced process is, once a connection: what the platform knows replaces what the process says."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent import futures
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from spanlite.agent.counts import AgentCounts
from spanlite.agent.hello import Hello
from spanlite.agent.identity.bounded import Bounded
from spanlite.agent.identity.cgroup import Placement, placement
from spanlite.agent.identity.hints import hints
from spanlite.agent.identity.nvml import Inventory
from spanlite.agent.identity.peer import Credentials, Hold
from spanlite.agent.identity.pods import Container, owner
from spanlite.agent.identity.procfs import ProcessFacts, read_process
from spanlite.agent.identity.source import Source
from spanlite.contract import catalogue
from spanlite.contract.batch import Gpu
from spanlite.contract.names import clean_text

log = logging.getLogger(__name__)

SOURCES = "spanlite.identity"
"""Attribute: who vouches, of kernel, kubelet, nvml; what they do not tell is the process's own word."""
KERNEL_ONLY = ("container.id", "container.runtime.name", "k8s.pod.uid", "process.vpid", "process.executable.name")
"""Said by a process they count only where the kernel could not be asked."""
_MOST_CHARS = 256
"""Of a hint."""
Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]


class _Found(NamedTuple):
    facts: ProcessFacts | None
    where: Placement
    container: Container | None
    inventory: Inventory | None


class Identifier:
    """Identities of this node's processes.

    Args:
        containers: the kubelet's, None: it is not asked.
        inventory: the driver's, likewise.
        proc: where /proc is.
        timeout_s: for all of one identity; after it the process's own word has to do.
    """

    def __init__(
        self,
        counts: AgentCounts,
        *,
        containers: Source[list[Container]] | None = None,
        inventory: Source[Inventory] | None = None,
        proc: Path = Path("/proc"),
        timeout_s: float = 2.0,
    ) -> None:
        self._counts = counts
        self._containers = containers
        self._inventory = inventory
        self._proc = proc
        self._timeout_s = timeout_s
        self._bounded = Bounded()

    def identify(self, said: Hello, peer: Credentials, hold: Hold) -> Hello:
        """A HELLO with what the platform knows in it; takes about the time limit at most."""
        try:
            found = self._bounded.call(lambda: self._find(said, peer, hold), self._timeout_s)
        except futures.TimeoutError:
            log.warning("process %d: its identity took more than %g s", peer.pid, self._timeout_s)
            self._counts.add(catalogue.AGENT_IDENTITIES, 1, "timeout")
            found = _Found(None, Placement(), None, None)
        else:
            self._counts.add(catalogue.AGENT_IDENTITIES, 1, _outcome(found, peer))
        return said._replace(resource=_resource(said, peer, found), gpus=self._gpus(said.gpus, found.inventory))

    def gauges(self) -> Samples:
        """How the sources stand."""
        sources = [source for source in (self._containers, self._inventory) if source is not None]
        samples: list[tuple[Mapping[str, str], float]] = [
            ({"source": source.name, "state": source.state}, 1.0) for source in sources
        ]
        return {catalogue.AGENT_IDENTITY_SOURCE.name: samples}

    def _find(self, said: Hello, peer: Credentials, hold: Hold) -> _Found:
        facts = read_process(peer.pid, self._proc) if peer.pid > 0 else None
        if not hold.alive():  # whose facts these are is not certain
            facts = None
        where = placement(facts.cgroup) if facts else Placement()
        uuids = frozenset(gpu.uuid for gpu in said.gpus)
        container = None
        if self._containers is not None and (where.pod_uid or facts is None):
            containers = self._containers.get() or []
            environ = (facts.environ if facts else None) or {}
            hinted = {**hints(environ), **said.resource, "HOSTNAME": environ.get("HOSTNAME", "")}
            container = owner(containers, uuids, hinted)
        inventory = None
        if self._inventory is not None and uuids:
            inventory = self._inventory.get(lambda known: uuids <= known.gpus.keys())
        return _Found(facts, where, container, inventory)

    def _gpus(self, gpus: Iterable[Gpu], inventory: Inventory | None) -> tuple[Gpu, ...]:
        """The GPUs as the driver knows them; those that it does not know are counted, and stay as they were said."""
        if inventory is None:
            return tuple(gpus)
        known: list[Gpu] = []
        for gpu in gpus:
            facts = inventory.gpus.get(gpu.uuid)
            if facts is None:
                self._counts.add(catalogue.AGENT_GPUS_UNVERIFIED)
                known.append(gpu)
            else:
                known.append(
                    replace(
                        gpu,
                        name=gpu.name or facts.name,
                        pci_bus_id=facts.pci_bus_id,
                        mig_profile=facts.mig_profile,
                        mig_instance=facts.mig_instance,
                    )
                )
        return tuple(known)


def _outcome(found: _Found, peer: Credentials) -> str:
    """What the kernel could tell: hidden, gone, pod, container, slurm or host."""
    if found.facts is None:
        return "gone" if peer.pid > 0 else "hidden"
    where = found.where
    if where.pod_uid:
        return "pod"
    if where.container_id:
        return "container"
    return "slurm" if where.slurm_job else "host"


def _resource(said: Hello, peer: Credentials, found: _Found) -> dict[str, str]:
    facts, where = found.facts, found.where
    mine = {} if facts is None else _by_kernel(facts, where)
    mine["process.user.id"] = str(peer.uid)
    if found.container is not None:
        mine["k8s.namespace.name"] = found.container.namespace
        mine["k8s.pod.name"] = found.container.pod
        mine["k8s.container.name"] = found.container.name
    if found.inventory is not None:
        mine["driver.version"] = found.inventory.driver_version
    vouching = {"kernel": facts, "kubelet": found.container, "nvml": found.inventory}
    mine[SOURCES] = ",".join(name for name, what in vouching.items() if what is not None) or "none"
    theirs = dict(said.resource)
    hinted: dict[str, str] = {}
    if facts is not None:
        hinted = {key: value[:_MOST_CHARS] for key, value in hints(facts.environ or {}).items()}
        for key in KERNEL_ONLY:
            theirs.pop(key, None)
            hinted.pop(key, None)
    told = {**hinted, **theirs, **mine}
    return {key: clean_text(value) for key, value in told.items() if value}


def _by_kernel(facts: ProcessFacts, where: Placement) -> dict[str, str]:
    return {
        "process.executable.name": facts.executable,
        "process.vpid": str(facts.vpid) if facts.vpid else "",
        "container.id": where.container_id,
        "container.runtime.name": where.runtime,
        "k8s.pod.uid": where.pod_uid,
        **({"slurm.job.id": where.slurm_job, "slurm.step.id": where.slurm_step} if where.slurm_job else {}),
    }
