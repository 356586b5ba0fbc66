"""The counters library against an imitation of PM sampling."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from spanlite.agent.counters.library import CountersLibrary, find_library
from spanlite.contract.errors import CountersError, UsageError
from tests.agent.counters.building import HERE, SOURCES, Built, build

_FORBIDDEN = "cuptiPmSamplingGetCounterAvailability: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"


def test_probe_tells_what_is_possible_and_why_not(built: Built) -> None:
    """Operators would not learn that the driver forbids counters, or of which GPU."""
    said = built.scenario("possible")
    levels = dict.fromkeys(("supported", "architecture", "sli", "vgpu", "confidential", "cmp", "wsl"), "yes")
    assert said["versions"] == [130000, 13000, 2]
    assert said["device"] == ["GPU-01112131-4151-6171-8191-011121314151", "GH100", levels, 0, ""]
    assert said["refused"] == ["no", "off", 35, _FORBIDDEN]
    assert said["no device"] == [-2, "no UUID of device 7: CUDA gives 101"]
    assert (said["hosts"], said["enabled"]) == (0, 0)


def test_samples_come_whole_in_order_and_once(built: Built) -> None:
    """Samples would be lost, doubled or mixed up where the image is smaller than the hardware buffer."""
    said = built.scenario("decoding")
    assert said["samples"] == [8, 8, 4, 0]
    assert said["more"] == [True, True, False, False]
    assert said["unfinished"] == [1, 1, 1, 1]
    assert said["starts"] == [at * 10**6 for at in range(20)]
    assert said["ends"] == [(at + 1) * 10**6 for at in range(20)]
    assert said["values"] == [[at + metric / 10 for metric in range(6)] for at in range(20)]
    assert said["configured"] == {
        "device": 1,
        "interval": 10**6,
        "trigger": 1,
        "hardware_bytes": 1 << 20,
        "append_mode": 0,
        "metrics": 6,
    }
    assert (said["evaluations"], said["enabled"], said["hosts"], said["violations"]) == (20, 0, 0, 0)


def test_whatever_is_refused_leaves_nothing_behind(built: Built) -> None:
    """A refused attempt would keep the counters from everybody else, or the reason would be guesswork."""
    said = built.scenario("refusals")
    for step, number, call in (
        ("availability_result", 35, "PmSamplingGetCounterAvailability"),
        ("host_result", 46, "ProfilerHostInitialize"),
        ("metrics_result", 17, "ProfilerHostConfigAddMetrics"),
        ("enable_result", 35, "PmSamplingEnable"),
        ("config_result", 27, "PmSamplingSetConfig"),
        ("start_result", 26, "PmSamplingStart"),
    ):
        result, text, *left = said[step]
        assert (result, left) == (number, [0, 0]), step
        assert text.startswith(f"cupti{call}: CUPTI_ERROR"), step
    assert said["passes"] == [-4, "the metrics need 3 passes, and sampling takes one", 0, 0, 1, 2]
    assert said["argument"][0] == -3
    assert said["metric"][0] == 17
    assert said["twice"][0] == 7
    assert (said["enabled"], said["hosts"], said["violations"]) == (0, 0, 0)


def test_chips_without_a_timer_are_sampled_by_cycles(built: Built) -> None:
    """An A100 would give nothing."""
    said = built.scenario("by_cycles")
    assert said["by time"][0] == 27
    assert (said["trigger"], said["interval"], said["enabled"], said["hosts"]) == (0, 1_500_000, 0, 0)


def test_faults_are_told_and_the_handle_can_be_closed(built: Built) -> None:
    """A full buffer or a lost device would pass for an idle GPU, or keep the agent from trying again."""
    said = built.scenario("faults")
    assert said["overflow"] == [8, "cuptiPmSamplingDecodeData: CUPTI_ERROR_OUT_OF_MEMORY (8)"]
    assert said["evaluate"] == [999, "cuptiProfilerHostEvaluateToGpuValues: CUPTI_ERROR_OTHER (999)"]
    assert said["gone"] == [999, "cuptiPmSamplingDecodeData: CUPTI_ERROR_OTHER (999)"]
    assert said["gone, close"] == [999, "cuptiPmSamplingStop: CUPTI_ERROR_OTHER (999)"]
    assert said["told"] is True
    assert (said["enabled"], said["hosts"], said["violations"]) == (0, 0, 0)


def test_memory_is_used_as_it_should(built: Built) -> None:
    """A handle, image or list of names would be read after it was freed."""
    checked = build(built.folder, "undefined,address")
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    for name in ("decoding", "refusals", "faults"):
        checked.scenario(name, LD_PRELOAD=runtime.strip(), ASAN_OPTIONS="detect_leaks=0")


def test_without_a_driver_it_says_so(built: Built) -> None:
    """The agent would die, or hide why there are no counters, on a node without a GPU."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver here")
    with pytest.raises(CountersError, match="no driver here"):
        CountersLibrary(built.library)


def test_a_library_that_was_not_built_is_named(tmp_path: Path) -> None:
    """Nobody would know what to build."""
    with pytest.raises(UsageError, match=r"libspanlite_counters[.]so is not built: run `make native`"):
        find_library(places=[tmp_path])
    with pytest.raises(UsageError, match="no such file"):
        find_library(tmp_path / "other.so")


def test_structs_are_laid_out_as_the_headers_say() -> None:
    """CUPTI would read our pointers from other places than we wrote them to."""
    headers = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "include"
    if not (headers / "cupti_pmsampling.h").is_file() or not (headers / "cuda.h").is_file():
        pytest.skip("needs NVIDIA's headers of CUPTI and CUDA 13 beside Python's packages")
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-invalid-offsetof", "-fsyntax-only"]
    words = ["g++", *flags, "-isystem", str(headers), "-I", str(SOURCES), str(HERE / "layout.cpp")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
