"""Driver and GPUs as the kernel, libcuda and NVML show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spanlite.agent.doctor import driver
from spanlite.agent.doctor.finding import Level
from tests.agent.doctor.worlds import CUDA_13_0, H200, MODULE, NODES, found, texts, world

MODULE_FILE = {"/proc/driver/nvidia/version": MODULE}
CUDA, NVML = ("cuda", "libcuda.so.1"), ("nvml", "libnvidia-ml.so.1")


def test_a_machine_without_a_driver_is_one_failure(tmp_path: Path) -> None:
    """No module, no libcuda: nothing else is said about GPUs."""
    assert found(driver.check, world(tmp_path)) == {"driver.none": Level.FAILURE}


def test_a_whole_driver_is_told_with_its_versions_and_gpus(tmp_path: Path) -> None:
    """Module, CUDA, devices, names and MIG mode stand in the report."""
    gpus = [{"name": "NVIDIA H200", "uuid": H200, "mig": True}, {"name": "NVIDIA H200", "uuid": "GPU-2", "mig": False}]
    libraries = {CUDA: CUDA_13_0, NVML: {"driver": "580.159.03", "gpus": gpus}}
    probe = world(tmp_path, {**MODULE_FILE, **NODES}, libraries=libraries)
    assert found(driver.check, probe) == {"driver.version": Level.OK, "gpu.list": Level.OK, "gpu.mig": Level.NOTE}
    said = texts(driver.check, probe)
    assert "driver 580.159.03, CUDA 13.0, /lib/libcuda.so.580; 1 devices" in said
    assert f"NVIDIA H200 {H200}, NVIDIA H200 GPU-2" in said
    assert f"MIG is on for {H200} " in said
    assert driver.cuda_version(probe) == (13, 0)


@pytest.mark.parametrize(
    ("cuda", "files", "finding"),
    [
        ({"error": "libcuda.so.1: wrong ELF class"}, {**MODULE_FILE, **NODES}, "driver.libcuda"),
        ({**CUDA_13_0, "init": 803}, {**MODULE_FILE, **NODES}, "driver.cuinit"),
        ({**CUDA_13_0, "init": 100, "devices": 0}, MODULE_FILE, "driver.devices"),
        (
            {**CUDA_13_0, "init": 100, "devices": 0},
            {**MODULE_FILE, "/dev/nvidiactl": "", "/dev/nvidia-uvm": ""},
            "driver.devices",
        ),
    ],
)
def test_half_a_driver_is_a_failure(tmp_path: Path, cuda: dict[str, Any], files: dict[str, str], finding: str) -> None:
    """User libraries, their version, and device nodes may each be missing in a container."""
    assert found(driver.check, world(tmp_path, files, libraries={CUDA: cuda}))[finding] == Level.FAILURE


def test_device_nodes_of_others_are_named(tmp_path: Path) -> None:
    """A user who may not open the GPU learns which node it is."""
    refused = {**CUDA_13_0, "init": 100, "devices": 0}
    probe = world(tmp_path, {**MODULE_FILE, **NODES}, libraries={CUDA: refused}, closed=[tmp_path / "dev/nvidia0"])
    assert "driver.devices: this user may not open /dev/nvidia0 [" in texts(driver.check, probe)


def test_where_cuda_sees_devices_nothing_is_missing(tmp_path: Path) -> None:
    """Sandboxes and other boards have other nodes, and no module to see; NVML knows the version too."""
    libraries = {CUDA: CUDA_13_0, NVML: {"driver": "580.159.03", "gpus": []}}
    probe = world(tmp_path, libraries=libraries)
    assert found(driver.check, probe) == {"driver.version": Level.OK, "gpu.list": Level.WARNING}
    assert "driver 580.159.03, CUDA 13.0" in texts(driver.check, probe)


def test_wsl_has_no_module_and_no_nodes(tmp_path: Path) -> None:
    """The Windows driver is no failure for lacking what Linux has."""
    probe = world(tmp_path, {"/dev/dxg": ""}, libraries={CUDA: CUDA_13_0})
    assert found(driver.check, probe) == {
        "driver.wsl": Level.NOTE,
        "driver.version": Level.OK,
        "gpu.nvml": Level.NOTE,
    }
