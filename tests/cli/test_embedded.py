"""Agent and pipeline in one process: how a failure on either side ends the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from spanlite.agent.recording import Recording
from spanlite.cli.embedded import Embedded, open_source
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.errors import ArchiveError, LayoutError, RecordingError
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.pipeline.embedded import Outputs
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.clock import ManualClock
from spanlite.transport.memory import MemoryBroker
from tests.cli.recorded import DATA, SLICE, raw, works

ALL = WindowPolicy(lateness_ns=None)
STAGES = DATA / "h200" / "stages-cupti130401.bin.xz"
STREAMS = DATA / "h200" / "streams-cupti130500.bin.xz"


class FullDisk(ArchiveWriter):
    """An archive whose disk is full from the start."""

    def flush(self) -> NoReturn:
        raise ArchiveError("disk full; free space")


def in_time(run: Callable[[], None]) -> BaseException | None:
    """What a run raised; a TimeoutError where it has not ended after 30 s."""
    return ThreadPoolExecutor(1).submit(run).exception(timeout=30)


@pytest.mark.parametrize("path", [STAGES, SLICE], ids=["recording", "table"])
@pytest.mark.parametrize("broker_bytes", [1, 64 << 20])
def test_an_archive_that_fails_on_the_way_ends_the_run(
    path: Path, broker_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves that the archive's own error comes out, whether senders wait for room or not."""
    monkeypatch.setattr("spanlite.cli.embedded.MemoryBroker", lambda: MemoryBroker(most_bytes=broker_bytes))

    def run() -> None:
        archive = FullDisk(tmp_path, roll_spans=1)
        with Embedded(Outputs(), policy=ALL, archive=archive) as embedded:
            embedded.play(open_source(path))

    error = in_time(run)
    assert isinstance(error, ArchiveError)
    assert str(error) == "disk full; free space"


def test_an_archive_that_fails_at_the_end_does_so_too(tmp_path: Path) -> None:
    """Proves that the last flush, when all is drained, is not forgiven."""

    def run() -> None:
        with Embedded(Outputs(), policy=ALL, archive=FullDisk(tmp_path)) as embedded:
            embedded.play(open_source(STREAMS))

    assert isinstance(in_time(run), ArchiveError)


@pytest.mark.parametrize("path", [STREAMS, SLICE], ids=["recording", "table"])
def test_an_output_that_fails_ends_the_run(path: Path) -> None:
    """Proves that a broken pipe behind an output comes out as it is."""

    def broken(_batch: Batch) -> None:
        raise BrokenPipeError

    def run() -> None:
        with Embedded(Outputs(batch=broken), policy=ALL) as embedded:
            embedded.play(open_source(path))

    assert isinstance(in_time(run), BrokenPipeError)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_in_the_pipeline_ends_the_run() -> None:
    """Proves that an error nobody foresaw neither hangs the senders nor passes for success."""

    def faulty(_batch: Batch) -> None:
        raise ZeroDivisionError

    def run() -> None:
        with Embedded(Outputs(batch=faulty), policy=ALL) as embedded:
            embedded.play(open_source(STREAMS))

    assert isinstance(in_time(run), ZeroDivisionError)


def test_an_error_of_the_caller_closes_no_windows(tmp_path: Path) -> None:
    """Proves that leaving with an error writes nothing, and hands the error on."""
    points: list[Any] = []

    def run() -> None:
        outputs = Outputs(window_points=points.extend)
        with Embedded(outputs, policy=ALL, archive=ArchiveWriter(tmp_path)) as embedded:
            embedded.play(open_source(STREAMS))
            raise KeyError

    assert isinstance(in_time(run), KeyError)
    assert points == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_bytes_that_turn_bad_on_the_way_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Proves that the agent's refusal of a buffer comes out of `play`, though the file was not checked before."""
    source = open_source(STREAMS)
    assert isinstance(source, Recording)
    damaged = replace(source, data=source.data[:-8] + b"\xff" * 8, sizes={})

    def run() -> None:
        with Embedded(Outputs(), policy=ALL) as embedded:
            embedded.play(replace(damaged, cupti_version=24))

    assert isinstance(in_time(run), LayoutError | RecordingError)


def test_counters_of_both_halves_agree() -> None:
    """Proves what /metrics says of itself: sent by the agent = received by the pipeline, all in the catalogue."""
    with Embedded(Outputs(), policy=ALL) as embedded:
        embedded.play(open_source(STREAMS))
    counters = embedded.counters()

    def total(family: catalogue.MetricSpec) -> float:
        return sum(value for _, value in counters[family.name])

    executions = len(works("streams-cupti130500"))
    assert total(catalogue.AGENT_SPANS_RECEIVED) == total(catalogue.AGENT_SPANS_SENT) == executions
    assert total(catalogue.PIPELINE_SPANS_RECEIVED) == total(catalogue.PIPELINE_SPANS_FOLDED) == executions
    assert total(catalogue.PIPELINE_LATE_SPANS) == 0


def test_speed_paces_by_the_recorded_times() -> None:
    """Proves that at speed 2 a recording takes half the time between its first kernel and its last buffer's end."""
    kernels = raw("stages-cupti130401").records[10]
    clock = ManualClock()
    with Embedded(Outputs(), policy=ALL, clock=clock) as embedded:
        embedded.play(open_source(STAGES), speed=2)
    span_ns = int(kernels["end"].max()) - int(kernels["start"].min())
    assert clock.monotonic_ns() == pytest.approx(span_ns / 2, rel=0.01)


def test_progress_grows_to_all() -> None:
    """Proves that a bar reaches its end, for bytes of a recording and rows of a table."""
    for path, whole in ((STAGES, len(raw("stages-cupti130401").data)), (SLICE, 20_000)):
        told: list[tuple[int, int]] = []
        with Embedded(Outputs(), policy=ALL) as embedded:
            embedded.play(open_source(path), progress=lambda done, total, told=told: told.append((done, total)))  # type: ignore[misc]
        assert told == sorted(told)
        assert told[-1] == (whole, whole)


def test_sources_are_told_by_their_names(tmp_path: Path) -> None:
    """Proves that an error of the layout names the file."""
    path = tmp_path / "x.bin"
    path.write_bytes(raw("streams-cupti130500").data[:1000])
    (tmp_path / "x.json").write_text(json.dumps(raw("streams-cupti130500").about))
    with pytest.raises(LayoutError, match=r"x\.bin: "):
        open_source(path)
