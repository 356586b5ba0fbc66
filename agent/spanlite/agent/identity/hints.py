"""What a process's environment says of it: hints, for what neither kernel nor kubelet can tell."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

_PLAIN = {
    "OTEL_SERVICE_NAME": "service.name",
    "POD_NAME": "k8s.pod.name",
    "POD_NAMESPACE": "k8s.namespace.name",
    "CONTAINER_NAME": "k8s.container.name",
    "NODE_NAME": "k8s.node.name",
    "SLURM_JOB_NAME": "slurm.job.name",
    "SLURM_JOB_PARTITION": "slurm.job.partition",
    "SLURM_JOB_ACCOUNT": "slurm.job.account",
}
_SLURM_IDS = {"SLURM_JOB_ID": "slurm.job.id", "SLURM_STEP_ID": "slurm.step.id"}
MOST = 64
"""Attributes out of OTEL_RESOURCE_ATTRIBUTES."""


def hints(environ: Mapping[str, str]) -> dict[str, str]:
    """Resource attributes by an environment; values that are empty are none.

    Those named one by one win over OTEL_RESOURCE_ATTRIBUTES, as OpenTelemetry has it for OTEL_SERVICE_NAME.
    """
    found = _resource_attributes(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    for variable, key in (_PLAIN | _SLURM_IDS).items():
        if environ.get(variable):
            found[key] = environ[variable]
    return found


def _resource_attributes(text: str) -> dict[str, str]:
    """`key=value,…`, percent-encoded; what has another form is passed over."""
    found: dict[str, str] = {}
    for piece in text.split(",")[:MOST]:
        key, equals, value = piece.strip().partition("=")
        if equals and key.strip() and value.strip():
            found[unquote(key.strip())] = unquote(value.strip())
    return found
