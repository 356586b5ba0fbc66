"""The GPUs of this node as the driver's management library names them. The only module that knows pynvml.

`python -m spanlite.agent.identity.nvml` prints them as JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from spanlite.agent.identity.source import Unavailable

_PROFILE = re.compile(r" MIG (\S+)$")
_UNKNOWN = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A GPU or MIG instance.

    Attributes:
        pci_bus_id: of the whole GPU, as the library spells it: `00000000:1B:00.0`.
        mig_profile: `1g.18gb`; empty for a whole GPU.
        mig_instance: number of the GPU instance, as DCGM's GPU_I_ID; empty likewise.
    """

    name: str
    pci_bus_id: str
    mig_profile: str = ""
    mig_instance: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the driver told.

    Attributes:
        gpus: by UUID, whole GPUs and MIG instances.
    """

    driver_version: str
    gpus: MappingProxyType[str, GpuFacts]


def read_inventory(library: Any = None) -> Inventory:
    """The GPUs as they are partitioned now.

    Args:
        library: the module pynvml, or one like it.

    Raises:
        Unavailable: not_installed (no nvidia-ml-py), no_driver, forbidden, failed.
    """
    library = library or _library()
    try:
        library.nvmlInit()
        try:
            gpus = dict(_gpus(library))
            return Inventory(_text(library.nvmlSystemGetDriverVersion()), MappingProxyType(gpus))
        finally:
            library.nvmlShutdown()
    except library.NVMLError as error:
        raise Unavailable(_state(library, error), f"NVML: {error}") from error


def _library() -> Any:
    try:
        import pynvml
    except ModuleNotFoundError as error:
        raise Unavailable("not_installed", "pip install 'spanlite[nvml]'") from error
    return pynvml


def _state(library: Any, error: Any) -> str:
    states = {
        library.NVML_ERROR_LIBRARY_NOT_FOUND: "no_driver",
        library.NVML_ERROR_DRIVER_NOT_LOADED: "no_driver",
        library.NVML_ERROR_NO_PERMISSION: "forbidden",
    }
    return states.get(error.value, "failed")


def _gpus(library: Any) -> Iterator[tuple[str, GpuFacts]]:
    for index in range(library.nvmlDeviceGetCount()):
        device = library.nvmlDeviceGetHandleByIndex(index)
        bus = _text(library.nvmlDeviceGetPciInfo(device).busId)
        name = _text(library.nvmlDeviceGetName(device))
        yield _text(library.nvmlDeviceGetUUID(device)), GpuFacts(name, bus)
        yield from _instances(library, device, bus)


def _instances(library: Any, device: Any, bus: str) -> Iterator[tuple[str, GpuFacts]]:
    """MIG instances of a GPU; none where it is not partitioned or cannot be."""
    if not _in_mig_mode(library, device):
        return
    for at in range(library.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            instance = library.nvmlDeviceGetMigDeviceHandleByIndex(device, at)
        except library.NVMLError as error:
            if error.value in (library.NVML_ERROR_NOT_FOUND, library.NVML_ERROR_INVALID_ARGUMENT):  # a free place
                continue
            raise
        name = _text(library.nvmlDeviceGetName(instance))
        profile = _PROFILE.search(name)
        number = int(library.nvmlDeviceGetGpuInstanceId(instance))
        yield (
            _text(library.nvmlDeviceGetUUID(instance)),
            GpuFacts(name, bus, profile[1] if profile else "", "" if number == _UNKNOWN else str(number)),
        )


def _in_mig_mode(library: Any, device: Any) -> bool:
    try:
        current, _pending = library.nvmlDeviceGetMigMode(device)
    except library.NVMLError as error:
        if error.value == library.NVML_ERROR_NOT_SUPPORTED:
            return False
        raise
    return bool(current == library.NVML_DEVICE_MIG_ENABLE)


def _text(value: str | bytes) -> str:
    """Older versions of the library give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def main() -> int:
    """Prints the inventory, or why there is none (exit code 1)."""
    try:
        found = read_inventory()
    except Unavailable as error:
        sys.stdout.write(json.dumps({"state": error.state, "why": str(error)}) + "\n")
        return 1
    gpus = {uuid: asdict(facts) for uuid, facts in found.gpus.items()}
    told = {"state": "ok", "driver_version": found.driver_version, "gpus": gpus}
    sys.stdout.write(json.dumps(told, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
