"""Foreign libraries, opened for real in a process of their own."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from spanlite.agent.doctor import probe as outside
from spanlite.agent.doctor.loading import NEEDED
from spanlite.agent.doctor.probe import Outside
from tests.agent.collector.building import SOURCES, Built, build

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("collector"))


def library(folder: Path, code: str) -> str:
    source = folder / "library.c"
    source.write_text(code, "utf-8")
    file = folder / "libcupti.so.13"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", file], check=True)
    return str(file)


def test_an_imitation_of_cupti_tells_its_version_and_its_file(built: Built) -> None:
    """It has every function that the collector wants."""
    told = Outside().load("cupti", str(built.cupti), ENVIRONMENT)
    assert told == {"file": str(built.cupti), "lacking": [], "result": 0, "version": 130500}


def test_what_the_collector_looks_up_is_what_is_asked_for() -> None:
    """The list here and FIND in cupti.c are the same."""
    source = (SOURCES / "cupti.c").read_text("utf-8")
    assert sorted(NEEDED) == sorted(f"cupti{line[7:-2]}" for line in source.split("\n") if line.startswith("  FIND("))


def test_nvidia_s_own_library_opens_without_a_driver() -> None:
    """The one that comes with cupti-python: all functions; the version may have to wait for a driver."""
    spec = find_spec("nvidia.cu13")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no CUPTI of NVIDIA's is installed")
    file = Path(spec.submodule_search_locations[0]) / "lib/libcupti.so.13"
    told = Outside().load("cupti", str(file), ENVIRONMENT)
    assert (told["file"], told["lacking"]) == (str(file), [])
    assert told["result"] == 999 or 130000 <= told["version"] < 140000


def test_a_library_that_crashes_or_hangs_is_told_and_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor lives on, and says how it ended."""
    crash = library(tmp_path, "void __attribute__((constructor)) now(void) { *(volatile int *)0 = 1; }\n")
    assert Outside().load("cupti", crash, ENVIRONMENT) == {
        "error": "it ended with -11: it said nothing",
        "crashed": True,
    }
    monkeypatch.setattr(outside, "_PATIENCE_S", 1.0)
    hang = library(tmp_path, "#include <unistd.h>\nvoid __attribute__((constructor)) now(void) { for (;;) pause(); }\n")
    assert Outside().load("cupti", hang, ENVIRONMENT) == {"error": "no answer within 1 s", "crashed": True}


def test_a_library_that_is_none_or_not_there_says_why(tmp_path: Path) -> None:
    """The loader's own words; a library without any function lacks all of them."""
    assert "No such file" in Outside().load("cuda", "libcuda-not-there.so.1", ENVIRONMENT)["error"]
    (tmp_path / "text").write_text("no library", "utf-8")
    assert "text: " in Outside().load("nvml", str(tmp_path / "text"), ENVIRONMENT)["error"]
    empty = library(tmp_path, "int nothing;\n")
    told = Outside().load("cupti", empty, ENVIRONMENT)
    assert (told["lacking"], told["result"]) == (list(NEEDED), -1)
    assert "cuDriverGetVersion" in Outside().load("cuda", empty, ENVIRONMENT)["error"]


def test_libcuda_is_asked_without_the_collector(tmp_path: Path) -> None:
    """Version and chips as libcuda gives them; an injection library in the doctor's environment is not loaded."""
    cuda = library(
        tmp_path,
        """
        #include <stdlib.h>
        int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
        int cuInit(unsigned flags) { return flags || getenv("CUDA_INJECTION64_PATH") ? 999 : 0; }
        int cuDeviceGetCount(int *count) { *count = 2; return 0; }
        int cuDeviceGet(int *device, int at) { *device = 7 + at; return 0; }
        int cuDeviceGetAttribute(int *value, int attribute, int device) {
          *value = attribute == 75 ? 2 + device : attribute == 76 ? device - 7 : -1;
          return 0;
        }
        """,
    )
    told = Outside().load("cuda", cuda, {**ENVIRONMENT, "CUDA_INJECTION64_PATH": "/x.so"})
    assert told == {"file": "", "version": 13000, "init": 0, "devices": 2, "chips": [90, 101]}


def test_nvml_names_its_gpus(tmp_path: Path) -> None:
    """Names, UUIDs and MIG mode of each; one that cannot be asked is told as such, as is a lack of a driver."""
    code = """
        #include <stdio.h>
        #include <stdint.h>
        int nvmlInit_v2(void) { return INIT; }
        int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "580.1"); return 0; }
        int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **device) {
          *device = (void *)(uintptr_t)(0x7fff00000000 + at);
          return at == 2 ? 15 : 0;
        }
        int nvmlDeviceGetName(void *device, char *text, unsigned size) { snprintf(text, size, "H200"); return 0; }
        int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
          snprintf(text, size, "GPU-%d", (int)((uintptr_t)device & 15));
          return 0;
        }
        int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending) {
          *now = 1;
          return (uintptr_t)device & 1 ? 0 : 3;
        }
        """
    told = Outside().load("nvml", library(tmp_path, code.replace("INIT", "0")), ENVIRONMENT)
    assert told["driver"] == "580.1"
    assert told["gpus"] == [
        {"name": "H200", "uuid": "GPU-0", "mig": False},
        {"name": "H200", "uuid": "GPU-1", "mig": True},
        {"error": "nvmlDeviceGetHandleByIndex_v2 gives 15"},
    ]
    told = Outside().load("nvml", library(tmp_path, code.replace("INIT", "9")), ENVIRONMENT)
    assert told == {"error": "nvmlInit_v2 gives 9"}


def test_the_kernel_tells_of_its_clock() -> None:
    """adjtimex with errors that are numbers, or why it does not."""
    told = Outside().load("clock", "", ENVIRONMENT)
    assert "error" in told or (told["maxerror_us"] >= 0 and 0 <= told["state"] <= 5)
