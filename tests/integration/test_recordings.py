"""Recordings of an H200 from the feeder's socket to decoded batches, against readings with `struct` and a stack."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from spanlite.agent import feeder
from spanlite.agent.feeder import hello
from spanlite.agent.frames import STAMP, Frame, pack_names, pack_text
from spanlite.agent.occupancy import occupancy, sm_limits
from spanlite.agent.recording import Recording, read_recording
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import Kind
from spanlite.contract.ids import derived_trace_id, range_span_ids
from tests.agent import records
from tests.agent.playing import Column, Played, ordered, play, process, rows, take

_WHOLE = 1 << 40
_ONE_MIB = 1 << 20
_PIECES = (64 << 10, _ONE_MIB, _WHOLE)
_CONFIG = {
    "registers_per_thread": "registers",
    "static_shared_memory": "static_shared",
    "dynamic_shared_memory": "dynamic_shared",
    "local_memory_per_thread": "local_per_thread",
    "shared_memory_executed": "shared_executed",
    "graph_node_id": "graph_node",
    "graph_id": "graph",
    "device_id": "device",
    "context_id": "context",
    "stream_id": "stream",
    "channel_id": "channel",
    **{name: name for name in ("launch_type", "channel_type", "correlation")},
    **{f"{what}_{axis}": f"{what}_{axis}" for what in ("grid", "block", "cluster") for axis in "xyz"},
}
"""Column of a span → field of the kernel record."""


@cache
def _recording(name: str) -> Recording:
    return read_recording(records.DATA / f"{name}.bin.xz")


@cache
def _played(name: str, buffer_bytes: int = _ONE_MIB) -> Played:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeder, "WHOLE_BYTES", buffer_bytes)
        return play(_recording(name), Path(folder))


@cache
def _rows(name: str, buffer_bytes: int = _ONE_MIB) -> dict[str, Column]:
    return rows(_played(name, buffer_bytes).batches)


def _kernel_rows(table: dict[str, Column]) -> dict[str, Column]:
    return ordered(table, table["kind"] == Kind.KERNEL)


@cache
def _kernel_records(name: str) -> list[int]:
    """Places of the kernels among `records.kernels`, in the order of `_kernel_rows`."""
    kernels = records.kernels(name)
    return sorted(
        range(len(kernels)),
        key=lambda at: (kernels[at].start, kernels[at].correlation, kernels[at].stream, kernels[at].graph_node),
    )


def _session(name: str) -> int:
    return int(hello(_recording(name), {})["session"], 16)


@pytest.mark.parametrize("name", records.RECORDINGS)
def test_every_kernel_arrives_as_it_was_recorded(name: str) -> None:
    """Times, ids, stream, place and configuration of every kernel equal a reading of its record with `struct`."""
    found = _kernel_rows(_rows(name))
    expected = [records.kernels(name)[at] for at in _kernel_records(name)]
    names = records.load(name)[1]["names"]
    assert found["start_ns"].tolist() == [kernel.start for kernel in expected]
    assert found["duration_ns"].tolist() == [kernel.end - kernel.start for kernel in expected]
    assert found["name"].tolist() == [names[str(kernel.name)] for kernel in expected]
    for column, field in _CONFIG.items():
        assert found[column].tolist() == [getattr(kernel, field) for kernel in expected], column
    assert set(found["gpu"].tolist()) == {1}
    assert set(found["weight"].tolist()) == {1}
    assert not found["bytes"].any()


@pytest.mark.parametrize("name", records.RECORDINGS)
def test_every_copy_and_memory_set_arrives_as_it_was_recorded(name: str) -> None:
    """Name, times, bytes, stream and correlation id of every copy and memory set equal a reading with `struct`."""
    table = _rows(name)
    chosen = (table["kind"] == Kind.MEMCPY) | (table["kind"] == Kind.MEMSET)
    columns = ("name", "start_ns", "duration_ns", "bytes", "stream_id", "correlation")
    found = sorted(zip(*(table[column][chosen].tolist() for column in columns), strict=True))
    expected = [
        (text, start, end - start, size, stream, correlation)
        for text, start, end, size, stream, correlation in records.copies(name)
    ]
    assert found == sorted(expected)


@pytest.mark.parametrize("name", records.RECORDINGS)
def test_every_range_arrives_once_with_its_times(name: str) -> None:
    """Ranges are numbered as they opened, and last from their opening to their closing marker."""
    table = _rows(name)
    table = {column: values[np.argsort(table["range_number"])] for column, values in table.items()}
    chosen = table["range_number"] >= 0
    names = records.load(name)[1]["names"]
    opened = sorted((time, number, text) for time, flags, number, text in records.markers(name) if flags == 2)
    closed = {number: time for time, flags, number, _ in records.markers(name) if flags == 4}
    assert table["range_number"][chosen].tolist() == list(range(len(opened)))
    assert table["start_ns"][chosen].tolist() == [time for time, _, _ in opened]
    assert table["duration_ns"][chosen].tolist() == [closed[number] - time for time, number, _ in opened]
    assert table["name"][chosen].tolist() == [names[str(text)] for _, _, text in opened]
    assert (table["kind"] == Kind.RANGE).tolist() == chosen.tolist()


@pytest.mark.parametrize("name", records.RECORDINGS)
@pytest.mark.parametrize("buffer_bytes", [64 << 10, _WHOLE])
def test_cutting_into_buffers_changes_no_span(name: str, buffer_bytes: int) -> None:
    """Buffers of 64 KiB, of 1 MiB and the whole give the same rows: times, names, stages, parents, traces."""
    one, other = ordered(_rows(name)), ordered(_rows(name, buffer_bytes))
    assert {len(values) for values in other.values()} == {len(one["kind"])}
    for column, values in one.items():
        gpu_work = values if column != "span" else values[one["range_number"] >= 0]  # rows are numbered as they come
        same = other[column] if column != "span" else other[column][other["range_number"] >= 0]
        assert gpu_work.tolist() == same.tolist(), column


@pytest.mark.parametrize("name", records.RECORDINGS)
@pytest.mark.parametrize("buffer_bytes", _PIECES)
def test_what_comes_in_goes_out_once(name: str, buffer_bytes: int) -> None:
    """Received equals sent, nothing is dropped, ids never repeat, and batches are numbered without a gap."""
    played, table = _played(name, buffer_bytes), _rows(name, buffer_bytes)
    recorded = records.load(name)[1]["counts"]
    spans = sum(recorded.get(kind, 0) for kind in ("1", "2", "10")) + recorded.get("12", 0) // 2
    counts = played.counts
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == spans == len(table["kind"])
    assert counts.value(catalogue.AGENT_SPANS_SENT) == spans
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {}
    assert counts.value(catalogue.AGENT_FRAMES_LOST) == 0
    assert counts.value(catalogue.AGENT_BATCH_BYTES) == sum(map(len, played.values))
    assert played.failures == []
    assert len(np.unique(table["span"])) == spans
    batches = played.batches
    assert [batch.sequence for batch in batches] == list(range(len(batches)))
    sizes = [len(batch.columns) for batch in batches]
    assert [batch.first_row for batch in batches] == [sum(sizes[:at]) for at in range(len(sizes))]
    assert max(sizes) <= 65_536


@pytest.mark.parametrize("name", ["serve-cupti130500", "stages-cupti130401"])
def test_every_parent_is_a_range_that_arrives(name: str) -> None:
    """All GPU work has a parent, and each parent's span id is that of exactly one range row, of the same trace."""
    batches = _played(name).batches
    table = _rows(name)
    ranges = table["range_number"] >= 0
    trace_of = dict(zip(table["span"][ranges].tolist(), table["trace"][ranges].tolist(), strict=True))
    parents = np.concatenate([batch.parent_span_ids for batch in batches])
    assert (parents[~ranges] != 0).all()
    named = parents != 0
    assert set(parents[named].tolist()) <= set(trace_of)
    assert [trace_of[parent] for parent in parents[named].tolist()] == table["trace"][named].tolist()
    assert parents.tolist() == range_span_ids(_session(name), table["parent"]).tolist()


def test_stages_of_a_fully_recorded_run_equal_a_replay_with_a_stack() -> None:
    """Stage and parent of 27,152 kernels are those of replaying every call and marker in order of time."""
    name = "stages-cupti130401"
    found = _kernel_rows(_rows(name))
    expected = [records.nested(name)[at] for at in _kernel_records(name)]
    assert len(expected) == 27152
    assert found["parent"].tolist() == [number for number, _ in expected]
    assert found["stage"].tolist() == [text for _, text in expected]
    assert _played(name).counts.value(catalogue.AGENT_SPANS_UNSTAGED) == 0


def test_traces_follow_the_ids_that_the_program_gave() -> None:
    """Each kernel's trace is derived from its own call's external id, else from the one id of both its neighbours."""
    name = "serve-cupti130500"
    external = records.external_ids(name)
    known = sorted(external)
    assert len(known) == 32718
    found = _kernel_rows(_rows(name))
    own = 0
    for correlation, trace in zip(found["correlation"].tolist(), found["trace"].tolist(), strict=True):
        at = bisect_left(known, correlation)
        own += known[at] == correlation
        request = external[known[at]]
        assert external[known[at if known[at] == correlation else at - 1]] == request
        assert trace == derived_trace_id(_session(name), request)
    assert own == 32718
    assert len(set(found["trace"].tolist())) == len(set(external.values()))


@pytest.mark.parametrize("name", records.RECORDINGS)
def test_occupancy_of_every_launch_is_that_of_the_model(name: str) -> None:
    """The dictionary's occupancy equals the model applied to each record, launch by launch."""
    expected = [records.kernels(name)[at] for at in _kernel_records(name)]
    model = occupancy(
        sm_limits(9, 0),
        threads_per_block=[kernel.block_x * kernel.block_y * kernel.block_z for kernel in expected],
        registers_per_thread=[kernel.registers for kernel in expected],
        static_shared_memory=[kernel.static_shared for kernel in expected],
        dynamic_shared_memory=[kernel.dynamic_shared for kernel in expected],
        shared_memory_config=[kernel.shared_executed for kernel in expected],
    )
    found = _kernel_rows(_rows(name))
    assert found["active_warps"].tolist() == model.active_warps.tolist()
    assert found["max_warps"].tolist() == model.max_warps.tolist()
    assert found["limiter"].tolist() == model.limiter.tolist()
    assert found["active_warps"].min() > 0


@pytest.mark.parametrize("name", ["serve-cupti130500", "streams-cupti130500"])
def test_a_second_play_gives_the_same_bytes(name: str) -> None:
    """With one clock every byte is the same: producer, numbers and body."""
    assert _played.__wrapped__(name).values == _played(name).values


@cache
def _stamped(name: str, buffer_bytes: int) -> list[Batch]:
    """A recording without any call record or marker; instead each marker's place among the correlation ids."""
    data, about = records.load(name)
    size = records.SIZES[records.KERNEL]
    kernels = b"".join(data[at : at + size] for kind, at in records.walk(name) if kind == records.KERNEL)
    by_time = sorted((start, correlation) for correlation, start in records.calls(name).items())
    times = [start for start, _ in by_time]
    edges = sorted((time, flags, text) for time, flags, _, text in records.markers(name))
    stamps = np.zeros(len(edges), STAMP)
    stamps["thread"] = (records.PROCESS << 32) | records.THREAD
    stamps["time_ns"] = [time for time, _, _ in edges]
    stamps["name"] = [text for _, _, text in edges]
    stamps["delta"] = [1 if flags == 2 else -1 for _, flags, _ in edges]
    # One thread draws the ids in order of time, so the newest at a marker is that of the last call before it.
    drawn = [0, *(correlation for _, correlation in by_time)]
    stamps["correlation"] = [drawn[bisect_left(times, time)] for time, _, _ in edges]
    names = {int(pointer): text for pointer, text in about["names"].items()}
    step = buffer_bytes // size * size
    traced = process({"cupti_version": str(about["cupti_version"])})
    frames = [(Frame.NAMES, pack_names(names)), (Frame.RANGES, stamps.tobytes())]
    frames += [(Frame.BUFFER, kernels[at : at + step]) for at in range(0, len(kernels), step)]
    batches = take(traced, [*frames, (Frame.STATS, pack_text({}))])
    return [decode_batch(encode_batch(batch)) for batch in [*batches, *traced.finish()]]


@pytest.mark.parametrize("buffer_bytes", [64 << 10, _WHOLE])
def test_stamps_alone_give_the_stages_that_calls_give(buffer_bytes: int) -> None:
    """Kernels and stamped boundaries, not one call record: 27,152 kernels in the same ranges of the same names."""
    name = "stages-cupti130401"
    found = _kernel_rows(rows(_stamped(name, buffer_bytes)))
    expected = [records.nested(name)[at] for at in _kernel_records(name)]
    assert found["stage"].tolist() == [text for _, text in expected]
    assert found["parent"].tolist() == [number for number, _ in expected]
