"""What the environment tells the twin: the variables of docs/collector.md, read as the native collector reads them.

Not SPANLITE_DUTY and SPANLITE_BUDGET: the twin traces everything, since what it left out would have to be counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_MS = 1_000_000
_KIB = 1024
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Options:
    """Settings of one process.

    Attributes:
        sockets: where an agent may listen, in order.
        resource: OTEL_RESOURCE_ATTRIBUTES.
    """

    disabled: bool
    stages: bool
    cupti: str
    sockets: tuple[str, ...]
    resource: str
    service: str
    buffer_bytes: int
    pool_bytes: int
    flush_ns: int
    hung_ns: int

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Options:
        """Settings by variables; a value that is none is as good as absent."""
        return cls(
            disabled=variables.get("SPANLITE_DISABLE") == "1",
            stages=variables.get("SPANLITE_STAGES") != "0",
            cupti=variables.get("SPANLITE_CUPTI", ""),
            sockets=_sockets(variables),
            resource=variables.get("OTEL_RESOURCE_ATTRIBUTES", ""),
            service=variables.get("OTEL_SERVICE_NAME", ""),
            buffer_bytes=_number(variables, "SPANLITE_BUFFER_KIB", 8192, 16, 32768) * _KIB,
            pool_bytes=_number(variables, "SPANLITE_POOL_KIB", 65536, 64, 1048576) * _KIB,
            flush_ns=_number(variables, "SPANLITE_FLUSH_MS", 1000, 0, _HOUR_MS) * _MS,
            hung_ns=_number(variables, "SPANLITE_HUNG_MS", 30000, 10, _HOUR_MS) * _MS,
        )


def _number(variables: Mapping[str, str], name: str, otherwise: int, least: int, most: int) -> int:
    text = variables.get(name, "")
    return min(max(int(text), least), most) if text.isascii() and text.isdigit() else otherwise


def _sockets(variables: Mapping[str, str]) -> tuple[str, ...]:
    if named := variables.get("SPANLITE_SOCKET"):
        return (named,)
    folder = variables.get("XDG_RUNTIME_DIR")
    return ("/run/spanlite/agent.sock", *([f"{folder}/spanlite/agent.sock"] if folder else []))
