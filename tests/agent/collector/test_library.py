"""The built library itself: what it exports, what it needs, and the real libcupti without a driver."""

from __future__ import annotations

import platform
import re
import subprocess
from importlib.metadata import files
from pathlib import Path

import pytest

from spanlite.agent import native
from spanlite.contract.errors import UsageError
from tests.agent.collector.building import Built
from tests.agent.collector.program import Program
from tests.agent.collector.tap import Tap

EXPORTED = {
    "InitializeInjection",
    "InitializeInjectionNvtx2",
    "spanlite_attach",
    "spanlite_pause",
    "spanlite_pop",
    "spanlite_push",
    "spanlite_resume",
    "spanlite_state",
}


def _symbols(native_built: Built) -> list[str]:
    done = subprocess.run(["objdump", "-T", native_built.collector], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("0")]


def test_it_exports_what_is_called_from_outside_and_nothing_else(native_built: Built) -> None:
    """Any other global name could replace one of the program's."""
    assert {line.split()[-1] for line in _symbols(native_built) if "*UND*" not in line} == EXPORTED


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines begin at glibc 2.17")
def test_it_loads_on_glibc_2_17(native_built: Built) -> None:
    """Containers are older than the machine that builds: no symbol is newer."""
    versions = {
        tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", "\n".join(_symbols(native_built)))
    }
    assert max(versions) <= (2, 17)


def test_it_needs_libc_alone(native_built: Built) -> None:
    """Neither CUDA nor libgcc: what is not in the container cannot keep a program from starting."""
    done = subprocess.run(["objdump", "-p", native_built.collector], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED +(\S+?)\.so", done.stdout))
    assert needed <= {"libc", "libpthread", "libdl", "ld-linux-x86-64", "ld-linux-aarch64"}


def test_the_library_is_found_where_it_was_built(native_built: Built, tmp_path: Path) -> None:
    """By the explicit path; a path that is none, and a tree in which nothing was built, say what to do."""
    assert native.find_collector(native_built.collector) == native_built.collector
    with pytest.raises(UsageError, match="there is no such file"):
        native.find_collector(tmp_path / "none.so")
    with pytest.raises(UsageError, match="make native"):
        native.find_collector(places=(tmp_path,))
    found = native.find_collector(places=(tmp_path, native_built.folder))
    assert found == native_built.collector


def test_the_environment_of_a_traced_process(native_built: Built) -> None:
    """Both injections name the library; a tool that stood in NVTX's place is handed on."""
    said = native.environment(native_built.collector, Path("/run/a.sock"), {"NVTX_INJECTION64_PATH": "/opt/tool.so"})
    assert said == {
        "CUDA_INJECTION64_PATH": str(native_built.collector),
        "NVTX_INJECTION64_PATH": str(native_built.collector),
        "SPANLITE_NVTX_NEXT": "/opt/tool.so",
        "SPANLITE_SOCKET": "/run/a.sock",
    }
    again = native.environment(native_built.collector, Path("/run/a.sock"), said)
    assert "SPANLITE_NVTX_NEXT" not in again


def _real_cupti() -> Path:
    """The installed package's libcupti."""
    for file in files("nvidia-cuda-cupti") or []:
        if file.name.startswith("libcupti.so"):
            return Path(str(file.locate()))
    pytest.skip("needs the package nvidia-cuda-cupti")


def test_the_real_libcupti_without_a_driver_leaves_the_program_alone(native_built: Built, tap: Tap) -> None:
    """The libcupti that cupti-python brings, on a machine without a GPU: a state, and the program ends well."""
    cupti = _real_cupti()
    with Program(native_built, tap.path, SPANLITE_CUPTI=str(cupti)) as program:
        assert program.ask(f"init {native_built.collector}") == "1"
        assert program.ask("state").startswith("cupti_error_")
        assert program.number("tasks") == 1
        program.ended_well()
