"""Which libcupti would be taken, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spanlite.agent.doctor import cupti
from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.cupti_known import cuda_of
from spanlite.agent.doctor.finding import Level
from spanlite.agent.doctor.probe import Probe
from tests.agent.doctor.worlds import CUDA_13_0, found, texts, told, world

NAME = ("cupti", "libcupti.so.13")
CUDA = ("cuda", "libcuda.so.1")
TOOLKIT = "/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcupti.so.13"
NEWER = "/usr/local/cuda-13.1/targets/x86_64-linux/lib/libcupti.so.13"


def with_one(root: Path, answer: dict[str, Any], environment: dict[str, str] | None = None) -> Probe:
    """A machine with CUDA 13.0 whose loader finds one libcupti."""
    return world(root, environment=environment, libraries={NAME: answer, CUDA: CUDA_13_0})


def levels(root: Path, answer: dict[str, Any], **environment: str) -> dict[str, Level]:
    return found(cupti.check, with_one(root, answer, environment))


def test_none_at_all_is_a_failure(tmp_path: Path) -> None:
    """Nothing on the loader's path, no toolkit, no package."""
    assert found(cupti.check, world(tmp_path)) == {"cupti.none": Level.FAILURE}


def test_the_loader_s_path_goes_before_the_toolkit_and_the_newest_toolkit_first(tmp_path: Path) -> None:
    """The order is the collector's own."""
    libraries = {("cupti", path): told(130001, path) for path in (TOOLKIT, NEWER)}
    probe = world(tmp_path, {TOOLKIT: "", NEWER: ""}, libraries=libraries)
    assert f"cupti.taken: {NEWER} (toolkit): version 130001 (CUDA 13.0)" in texts(cupti.check, probe)
    probe = world(tmp_path, libraries={**libraries, ("cupti", "libcupti.so.12"): told(28, "/lib/libcupti.so.12")})
    said = texts(cupti.check, probe)
    assert "cupti.taken: /lib/libcupti.so.12 (the loader's path): version 28 (CUDA 12.9)" in said
    assert said.count("cupti.candidate: ") == 2


def test_who_names_one_means_that_one(tmp_path: Path) -> None:
    """SPANLITE_CUPTI wins, also where it cannot be opened: the collector looks no further."""
    assert levels(tmp_path, told(130001), SPANLITE_CUPTI="/opt/none.so")["cupti.broken"] == Level.FAILURE
    assert levels(tmp_path, told(130001), SPANLITE_CUPTI="none.so")["cupti.broken"] == Level.FAILURE
    libraries = {NAME: told(130001), ("cupti", "/opt/mine.so"): told(130500, "/opt/mine.so")}
    probe = world(tmp_path, environment={"SPANLITE_CUPTI": "/opt/mine.so"}, libraries=libraries)
    assert "cupti.taken: /opt/mine.so (SPANLITE_CUPTI): version 130500" in texts(cupti.check, probe)


def test_a_program_s_own_is_taken_before_the_loader_s(tmp_path: Path) -> None:
    """What a framework has loaded is seen through the process's own files."""
    torch = "/venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"
    files = {
        "/proc/42/cmdline": "python\0serve.py\0",
        "/proc/42/environ": "LD_LIBRARY_PATH=/x\0",
        "/proc/42/maps": f"7f00-7f01 r-xp 0000 fe:00 12 {torch}\n7f02-7f03 r--p 0000 00:00 0\n",
    }
    libraries = {NAME: told(130001), ("cupti", f"/proc/42/root{torch}"): told(26, torch)}
    probe = world(tmp_path, files, libraries=libraries)
    said = texts(cupti.check, probe, Asked(pid=42))
    assert f"cupti.taken: {torch} (loaded in process 42): version 26 (CUDA 12.8)" in said


def test_one_in_a_python_package_is_taken_only_where_the_program_brings_it(tmp_path: Path) -> None:
    """It is no failure, and the fix names it."""
    package = "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13"
    libraries = {("cupti", package): told(130000, package)}
    probe = world(tmp_path, {package: ""}, {"VIRTUAL_ENV": "/venv"}, libraries=libraries)
    assert found(cupti.check, probe) == {"cupti.candidate": Level.NOTE, "cupti.brought": Level.WARNING}
    assert f"SPANLITE_CUPTI={package}" in texts(cupti.check, probe)


def test_what_crashes_when_it_is_loaded_is_a_failure_and_not_passed_over(tmp_path: Path) -> None:
    """dlopen would have crashed the program too, before any other place."""
    answer = {"error": "it ended with -11: it said nothing", "crashed": True}
    assert levels(tmp_path, answer) == {"cupti.crashed": Level.FAILURE}


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        (told(130001, lacking=["cuptiActivityEnable"]), "cupti.incomplete"),
        (told(22), "cupti.unknown_version"),
        (told(140000), "cupti.unknown_version"),
        (told(0, result=15), "cupti.refuses"),
        (told(140000), "cupti.newer_than_driver"),
    ],
)
def test_what_cannot_work_is_a_failure(tmp_path: Path, answer: dict[str, Any], finding: str) -> None:
    """Missing functions, unknown layouts, and a CUPTI that the driver refuses."""
    assert levels(tmp_path, answer)[finding] == Level.FAILURE


def test_a_release_that_wants_a_driver_to_tell_its_version_is_no_failure_without_one(tmp_path: Path) -> None:
    """CUPTI 13.5 answers 999 where there is no driver."""
    probe = world(tmp_path, libraries={NAME: told(0, result=999)})
    assert found(cupti.check, probe) == {"cupti.taken": Level.OK, "cupti.version_untold": Level.NOTE}


def test_a_newer_minor_version_is_a_note(tmp_path: Path) -> None:
    """CUDA's minor versions are compatible: 13.5 on a driver for 13.0 traces."""
    assert levels(tmp_path, told(130500)) == {"cupti.taken": Level.OK, "cupti.newer_minor": Level.NOTE}


@pytest.mark.parametrize(
    ("version", "chips", "silent"),
    [(26, [90, 120], False), (24, [90, 100], True), (26, [103], True), (27, [103, 121], False), (28, [110], True)],
)
def test_a_gpu_that_came_after_cupti_is_a_failure(
    tmp_path: Path, version: int, chips: list[int], *, silent: bool
) -> None:
    """Blackwell came with CUDA 12.8, its second generation of chips with 12.9, Thor's number with 13.0."""
    libraries = {NAME: told(version), CUDA: {**CUDA_13_0, "chips": chips}}
    levels = found(cupti.check, world(tmp_path, libraries=libraries))
    assert (levels.get("cupti.older_than_gpu") == Level.FAILURE) is silent


@pytest.mark.parametrize(
    ("version", "known"),
    [
        (24, {"first_records", "null_buffers", "graph_correlation"}),
        (27, {"first_records", "graph_correlation"}),
        (130001, {"first_records", "graph_correlation", "unloading", "hardware_events"}),
        (130100, {"graph_correlation", "unloading", "hardware_events"}),
        (130101, {"unloading", "hardware_events"}),
        (130200, {"hardware_events"}),
        (130300, {"hardware_events", "mig_uuids"}),
        (130301, {"hardware_events"}),
        (130401, set()),
    ],
)
def test_known_faults_are_told_for_their_releases_only(tmp_path: Path, version: int, known: set[str]) -> None:
    """First and last release of each range; none is a warning where everything is traced at once."""
    told_of = levels(tmp_path, told(version), SPANLITE_BUDGET="full")
    assert {name.removeprefix("cupti.") for name in told_of} - {"taken", "newer_minor"} == known
    assert max(told_of.values()) <= Level.NOTE


@pytest.mark.parametrize(
    ("variables", "level"),
    [
        ({"SPANLITE_DUTY": "20/200"}, Level.WARNING),
        ({"SPANLITE_BUDGET": "0.5"}, Level.WARNING),
        ({}, Level.WARNING),
        ({"SPANLITE_BUDGET": "full"}, Level.NOTE),
    ],
)
def test_wrong_correlations_matter_where_kinds_are_enabled_by_turns(
    tmp_path: Path, variables: dict[str, str], level: Level
) -> None:
    """Each turn is a session, and sessions after the first are those with the fault."""
    assert levels(tmp_path, told(130001), **variables)["cupti.graph_correlation"] == level


def test_versions_are_named_by_their_cuda() -> None:
    """NVIDIA's own table of versions, and xxyyzz from 13.0 on."""
    named = {version: cuda_of(version) for version in (18, 24, 26, 28, 25, 130102)}
    assert named == {18: (11, 8), 24: (12, 6), 26: (12, 8), 28: (12, 9), 25: None, 130102: (13, 1)}
