"""Driver: the kernel's module, libcuda, device nodes, and the GPUs that NVML names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.finding import Finding, failure, note, ok, warning
from spanlite.agent.doctor.probe import Probe

_MODULE = "/proc/driver/nvidia/version"
_CUINIT = {
    3: "not initialized",
    34: "a stub of libcuda is loaded (a folder `stubs` stands in LD_LIBRARY_PATH)",
    100: "no device",
    101: "invalid device (CUDA_VISIBLE_DEVICES?)",
    802: "the NVSwitch fabric is not ready (nvidia-fabricmanager)",
    803: "libcuda and the kernel module are of different versions",
    804: "forward compatibility (package cuda-compat) is not for this GPU",
    999: "unknown error, often missing device nodes or a module that is not loaded (nvidia-uvm)",
}


def check(probe: Probe, _asked: Asked) -> Iterator[Finding]:
    """Findings driver.* and gpu.*."""
    module = probe.files.text(_MODULE)
    wsl = bool(probe.files.glob("/dev/dxg"))
    cuda = probe.load("cuda", "libcuda.so.1")
    if wsl:
        yield note("driver.wsl", "this is WSL: the driver is that of Windows, reached through /dev/dxg")
    if module is None and not wsl and "error" in cuda:
        yield failure(
            "driver.none",
            f"there is no NVIDIA driver here: neither {_MODULE} nor libcuda.so.1 ({cuda['error']})",
            "install the driver; in a container start it with the NVIDIA runtime (--gpus all) and "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
        return
    nvml = probe.load("nvml", "libnvidia-ml.so.1")
    yield from _libcuda(cuda, _module_version(module) or nvml.get("driver", "of unknown version"))
    if not wsl and not cuda.get("devices"):  # where CUDA sees devices it has reached them, however
        yield from _nodes(probe)
    yield from _gpus(nvml)


def cuda_version(probe: Probe) -> tuple[int, int] | None:
    """The newest CUDA that the driver speaks, such as (13, 0); None without a driver."""
    version = probe.load("cuda", "libcuda.so.1").get("version")
    return (version // 1000, version % 1000 // 10) if version else None


def chips(probe: Probe) -> list[int]:
    """Compute capability of each device, times ten: 90 is 9.0."""
    told: list[int] = probe.load("cuda", "libcuda.so.1").get("chips", [])
    return told


def _libcuda(cuda: dict[str, Any], driver: str) -> Iterator[Finding]:
    if "error" in cuda:
        yield failure(
            "driver.libcuda",
            f"the kernel has the NVIDIA module, but libcuda.so.1 cannot be used: {cuda['error']}",
            "install the driver's user libraries of the same version; in a container set "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
        return
    version = cuda["version"]
    told = f"driver {driver}, CUDA {version // 1000}.{version % 1000 // 10}, {cuda['file']}"
    if cuda["init"]:
        yield failure(
            "driver.cuinit",
            f"cuInit gives {cuda['init']}: {_CUINIT.get(cuda['init'], 'see CUresult in cuda.h')}; {told}",
            "run nvidia-smi: it fails likewise; load the module nvidia-uvm, reboot after a driver update, or start the "
            "container anew",
        )
    else:
        yield ok("driver.version", f"{told}; {cuda['devices']} devices")


def _module_version(text: str | None) -> str:
    found = re.search(r"Kernel Module.*?\s(\d+[.\d]+)\s", text or "")
    return found[1] if found else ""


def _nodes(probe: Probe) -> Iterator[Finding]:
    nodes = [*probe.files.glob("/dev/nvidia[0-9]*"), *probe.files.glob("/dev/nvidiactl")]
    lacking = [name for name in ("/dev/nvidiactl", "/dev/nvidia-uvm") if not probe.files.glob(name)]
    closed = [node for node in nodes if not probe.outside.may(probe.files.at(node), os.R_OK | os.W_OK)]
    if lacking or len(nodes) < 2:
        yield failure(
            "driver.devices",
            f"device nodes are missing: {', '.join(lacking) or '/dev/nvidia0 and the like'}",
            "load nvidia-uvm (nvidia-modprobe -u -c=0); in a container start it with the NVIDIA runtime",
        )
    elif closed:
        yield failure(
            "driver.devices",
            f"this user may not open {', '.join(closed)}",
            "chmod 666 the nodes, or put the user into their group",
        )


def _gpus(nvml: dict[str, Any]) -> Iterator[Finding]:
    if "error" in nvml:
        yield note("gpu.nvml", f"libnvidia-ml.so.1 cannot be used: {nvml['error']}; names and MIG mode are unknown")
        return
    gpus = nvml["gpus"]
    told = ", ".join(gpu.get("error") or f"{gpu['name']} {gpu['uuid']}" for gpu in gpus)
    yield ok("gpu.list", told) if gpus else warning("gpu.list", "NVML shows no GPU", "see that the container has one")
    if mig := [gpu["uuid"] for gpu in gpus if gpu.get("mig")]:
        yield note("gpu.mig", f"MIG is on for {', '.join(mig)}")
