"""The driver's inventory: by an imitation of pynvml with its own errors and numbers; and by pynvml without a driver."""

# ruff: noqa: N802, ARG002  # the imitation's methods are named, and called, as pynvml's

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from spanlite.agent.identity import nvml
from spanlite.agent.identity.nvml import GpuFacts, Inventory, read_inventory
from spanlite.agent.identity.source import Unavailable


class Imitation:
    """pynvml for two GPUs, the second with two of four MIG instances made; one that cannot be partitioned is third."""

    def __init__(self, *, as_bytes: bool = False, fails: dict[str, int] | None = None) -> None:
        self._as_bytes = as_bytes
        self._fails = fails or {}
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_") or name == "NVMLError":
            return getattr(pynvml, name)
        if name in self._fails:
            raise_it = pynvml.NVMLError(self._fails[name])

            def failing(*_: object) -> None:
                raise raise_it

            return failing
        raise AttributeError(name)

    def _give(self, text: str) -> str | bytes:
        return text.encode() if self._as_bytes else text

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str | bytes:
        return self._give("580.159.03")

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"gpu{index}"

    def nvmlDeviceGetPciInfo(self, device: str) -> SimpleNamespace:
        return SimpleNamespace(busId=self._give(f"00000000:1{device[-1]}:00.0"))

    def nvmlDeviceGetName(self, device: str) -> str | bytes:
        return self._give("NVIDIA H200" if device.startswith("gpu") else f"NVIDIA H200 MIG {device[-1]}g.18gb")

    def nvmlDeviceGetUUID(self, device: str) -> str | bytes:
        return self._give(("GPU-" if device.startswith("gpu") else "MIG-") + device)

    def nvmlDeviceGetMigMode(self, device: str) -> tuple[int, int]:
        if device == "gpu2":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return (1, 1) if device == "gpu1" else (0, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, device: str) -> int:
        assert device == "gpu1"
        return 4

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: str, at: int) -> str:
        if at == 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        if at == 3:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return f"mig{at + 1}"

    def nvmlDeviceGetGpuInstanceId(self, instance: str) -> int:
        return 7 if instance == "mig1" else 0xFFFFFFFF


EXPECTED = {
    "GPU-gpu0": GpuFacts("NVIDIA H200", "00000000:10:00.0"),
    "GPU-gpu1": GpuFacts("NVIDIA H200", "00000000:11:00.0"),
    "MIG-mig1": GpuFacts("NVIDIA H200 MIG 1g.18gb", "00000000:11:00.0", "1g.18gb", "7"),
    "MIG-mig2": GpuFacts("NVIDIA H200 MIG 2g.18gb", "00000000:11:00.0", "2g.18gb", ""),
    "GPU-gpu2": GpuFacts("NVIDIA H200", "00000000:12:00.0"),
}


@pytest.mark.parametrize("as_bytes", [False, True])
def test_gpus_and_instances_are_listed(as_bytes: bool) -> None:
    """Free places of MIG and GPUs without it are passed over; texts come as bytes from older libraries."""
    library = Imitation(as_bytes=as_bytes)
    found = read_inventory(library)
    assert (found.driver_version, dict(found.gpus)) == ("580.159.03", EXPECTED)
    assert library.open == 0


@pytest.mark.parametrize(
    ("function", "number", "state"),
    [
        ("nvmlInit", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no_driver"),
        ("nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "no_driver"),
        ("nvmlInit", pynvml.NVML_ERROR_NO_PERMISSION, "forbidden"),
        ("nvmlInit", pynvml.NVML_ERROR_UNKNOWN, "failed"),
        ("nvmlDeviceGetCount", pynvml.NVML_ERROR_GPU_IS_LOST, "failed"),
        ("nvmlDeviceGetMigMode", pynvml.NVML_ERROR_UNKNOWN, "failed"),
        ("nvmlDeviceGetMigDeviceHandleByIndex", pynvml.NVML_ERROR_UNKNOWN, "failed"),
    ],
)
def test_what_fails_has_a_state(function: str, number: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way in which there is no inventory; the library is closed again if it was opened."""
    library = Imitation(fails={function: number})
    monkeypatch.delattr(Imitation, function)
    with pytest.raises(Unavailable) as caught:
        read_inventory(library)
    assert caught.value.state == state
    assert library.open == 0


def test_the_real_library_knows_every_name_that_is_used() -> None:
    """The imitation imitates what exists: its functions and numbers are the real module's."""
    used = [name for name in vars(Imitation) if name.startswith("nvml")]
    assert [name for name in used if not callable(getattr(pynvml, name, None))] == []


@pytest.fixture
def inventory(monkeypatch: pytest.MonkeyPatch) -> Inventory:
    """The imitation in pynvml's place."""
    monkeypatch.setattr(nvml, "_library", Imitation)
    return read_inventory()


def test_the_command_prints_what_was_found(inventory: Inventory, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m spanlite.agent.identity.nvml` on a node with GPUs."""
    assert nvml.main() == 0
    told = json.loads(capsys.readouterr().out)
    assert told["driver_version"] == inventory.driver_version
    assert told["gpus"]["MIG-mig1"]["mig_profile"] == "1g.18gb"


def test_the_command_says_why_there_is_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """… and on one without a driver."""
    monkeypatch.delattr(Imitation, "nvmlInit")
    monkeypatch.setattr(nvml, "_library", lambda: Imitation(fails={"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}))
    assert nvml.main() == 1
    assert json.loads(capsys.readouterr().out)["state"] == "no_driver"
