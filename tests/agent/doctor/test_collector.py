"""The collector's library and the environment that would load it."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from spanlite.agent.doctor import collector
from spanlite.agent.doctor.asked import Asked
from spanlite.agent.doctor.elf import needs
from spanlite.agent.doctor.finding import Level
from spanlite.agent.doctor.probe import Probe
from tests.agent.collector.building import Built, build
from tests.agent.doctor.worlds import found, texts, world


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("collector"))


def levels(probe: Probe, built: Built) -> dict[str, Level]:
    return found(collector.check, probe, Asked(collector=built.collector))


def test_a_library_that_loads_here_is_told_with_its_floor(built: Built, tmp_path: Path) -> None:
    """glibc 2.17 is what the collector promises."""
    assert levels(world(tmp_path), built) == {"collector.library": Level.OK}
    assert "x86_64, glibc 2.17 or newer (here 2.36)" in texts(
        collector.check, world(tmp_path), Asked(collector=built.collector)
    )


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"libc": "glibc 2.12"}, "collector.libc"),
        ({"libc": "glibc 2.9"}, "collector.libc"),
        ({"libc": ""}, "collector.libc"),
        ({"machine": "aarch64"}, "collector.machine"),
    ],
)
def test_a_library_that_does_not_load_here_is_a_failure(
    built: Built, tmp_path: Path, change: dict[str, str], finding: str
) -> None:
    """An older glibc (by number, not by text), musl, another processor."""
    assert levels(dataclasses.replace(world(tmp_path), **change), built) == {finding: Level.FAILURE}  # type: ignore[arg-type]  # texts all


def test_a_library_that_is_not_there_or_none_is_a_failure(tmp_path: Path) -> None:
    """What was not built, and what is cut off."""
    cut = tmp_path / "libspanlite_collector.so"
    assert found(collector.check, world(tmp_path), Asked(collector=cut)) == {"collector.missing": Level.FAILURE}
    cut.write_bytes(b"\x7fELF\x02\x01")
    assert found(collector.check, world(tmp_path), Asked(collector=cut)) == {"collector.broken": Level.FAILURE}


def test_the_floor_is_the_newest_symbol_that_is_needed(built: Built, tmp_path: Path) -> None:
    """The same as readelf says, for the collector and for a library without one of glibc's symbols."""
    source = tmp_path / "empty.c"
    source.write_text("int nothing(void) { return 0; }\n", "utf-8")
    empty = tmp_path / "libempty.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-nostdlib", source, "-o", empty], check=True)
    for file in (built.collector, built.cuda, empty):
        said = subprocess.run(["readelf", "-V", "-W", file], capture_output=True, text=True, check=True).stdout
        named = [word.removeprefix("GLIBC_") for word in said.split() if word.startswith("GLIBC_2")]
        wanted = max((tuple(map(int, name.split("."))) for name in named), default=(0, 0))
        assert needs(file.read_bytes()) == ("x86_64", wanted)


@pytest.mark.parametrize(
    ("variables", "finding", "level", "said"),
    [
        ({"SPANLITE_DISABLE": "1"}, "collector.disabled", Level.WARNING, "SPANLITE_DISABLE=1 in this environment"),
        (
            {"CUDA_INJECTION64_PATH": "/opt/nsys/libToolsInjection64.so"},
            "collector.injection_taken",
            Level.FAILURE,
            "(Nsight Systems)",
        ),
        ({"NVTX_INJECTION64_PATH": "/opt/libcupti.so.13"}, "collector.nvtx_taken", Level.NOTE, "CUPTI itself"),
        ({"SPANLITE_STAGES": "0"}, "collector.stages_off", Level.NOTE, "no stages"),
        ({"SPANLITE_BUDGET": "0.5"}, "collector.budget", Level.NOTE, "as much as may cost 0.5 percent"),
        ({"SPANLITE_BUDGET": "full"}, "collector.budget", Level.NOTE, "all of the time"),
        ({"SPANLITE_DUTY": "20/200"}, "collector.duty", Level.NOTE, "10% of the time"),
        ({"SPANLITE_DUTY": "often"}, "collector.duty", Level.WARNING, "always on"),
    ],
)
def test_variables_that_change_what_is_traced_are_told(
    built: Built, tmp_path: Path, *, variables: dict[str, str], finding: str, level: Level, said: str
) -> None:
    """Switches of the collector, and other tools in its place."""
    probe = world(tmp_path, environment=variables)
    assert levels(probe, built) == {"collector.library": Level.OK, finding: level}
    assert said in texts(collector.check, probe, Asked(collector=built.collector))


def test_the_collector_s_own_variables_are_no_conflict(built: Built, tmp_path: Path) -> None:
    """As `spanlite run` sets them."""
    ours = dict.fromkeys(("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"), str(built.collector))
    assert levels(world(tmp_path, environment=ours), built) == {"collector.library": Level.OK}
