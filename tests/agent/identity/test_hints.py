"""Hints out of an environment."""

from __future__ import annotations

from spanlite.agent.identity.hints import MOST, hints


def test_variables_become_attributes() -> None:
    """Each variable's name in OpenTelemetry; empty ones and others are none."""
    environ = {
        "OTEL_SERVICE_NAME": "decode",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=other, team=a%2Cb ,bad,=x,empty=,k8s.pod.name=said",
        "POD_NAME": "web-0",
        "POD_NAMESPACE": "",
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_NAME": "train",
        "HOME": "/home/a",
    }
    assert hints(environ) == {
        "service.name": "decode",
        "team": "a,b",
        "k8s.pod.name": "web-0",
        "slurm.job.id": "12",
        "slurm.job.name": "train",
    }


def test_there_are_only_so_many() -> None:
    """A process cannot fill every batch's header by its environment."""
    text = ",".join(f"k{n}=v" for n in range(10 * MOST))
    assert len(hints({"OTEL_RESOURCE_ATTRIBUTES": text})) == MOST
