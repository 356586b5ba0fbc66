"""`spanlite agent --counters` as a process, with an imitation of CUPTI, without a driver, and with wrong flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.counters.building import Built, build
from tests.agent.counters.serving import UUID
from tests.agent.waiting import until
from tests.cli.process import refused, spanlite
from tests.cli.test_agent_command import _STARTED, Agent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The library and the imitations."""
    return build(tmp_path_factory.mktemp("counters"))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose agents are ended with the test."""
    yield tmp_path
    for process in _STARTED:
        process.kill()
        process.wait()
    _STARTED.clear()


def test_a_gpu_is_sampled_and_told(built: Built, folder: Path) -> None:
    """Flags would not reach the sampler, or nothing of it the spool and the page."""
    words = ("--counters", "--counters-library", built.library, "--counters-cupti", built.cupti)
    environment = {**built.environment(MOCK_PM_LIVE="50"), "SPANLITE_AGENT_COUNTERS_GPUS": f"{UUID},GPU-none"}
    agent = Agent(folder, *words, "--identity", "none", **environment)
    state = f'spanlite_agent_counters_state{{UUID="{UUID}",state="sampling"}} 1.0'
    until(lambda: state in agent.metrics())
    assert 'spanlite_agent_counters_state{UUID="GPU-none",state="absent"} 1.0' in agent.metrics()
    waiting = re.compile(r"^spanlite_agent_spool_spans (?!0\.0)", re.MULTILINE)
    until(lambda: waiting.search(agent.metrics()) is not None)
    assert re.search(r"^spanlite_agent_counter_decode_seconds_total [0-9.e-]+$", agent.metrics(), re.MULTILINE)
    assert agent.end() == 0
    batches = agent.batches()
    told = {name for batch in batches for name in batch.columns.strings}
    assert {"spanlite_gpu_sm_active_ratio", "spanlite_gpu_l2_sectors_total"} <= told
    assert {batch.resource["service.name"] for batch in batches} == {"spanlite-agent"}


def test_without_a_driver_the_agent_goes_on(built: Built, folder: Path) -> None:
    """A node without a driver would lose its spans for want of counters."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver here")
    agent = Agent(folder, "--counters", "--counters-library", built.library, "--identity", "none")
    until(lambda: 'spanlite_agent_counters_state{state="unavailable"} 1.0' in agent.metrics())
    assert agent.get("/readyz")[0] == 200
    assert agent.end() == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--counters-hz", "0"], "no number from 1 to 20000"),
        (["--counters", "--counters-library", "none.so"], "none.so: there is no such file"),
        (["--counters", "--counters-library", __file__, "--counters-cupti", "x.so"], "x.so: there is no such file"),
    ],
)
def test_wrong_flags_are_one_line(folder: Path, words: list[str], said: str) -> None:
    """The agent would start and sample nothing."""
    words = ["--socket", str(folder / "a.sock"), "--spool", str(folder / "spool"), "--metrics-port", "0", *words]
    refused(spanlite("agent", *words, "--bootstrap", "127.0.0.1:1"), said)
