"""Decoding activity buffers, against a reader that takes one record after the other with `struct`."""

from __future__ import annotations

import json
import lzma
import random
import struct
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.agent import walk as walk_module
from spanlite.agent.activity import (
    MARKER_END,
    MARKER_INSTANTANEOUS,
    MARKER_START,
    Activity,
    Records,
    decode,
    marker_threads,
)
from spanlite.agent.layouts import layout_for
from spanlite.agent.walk import walk
from spanlite.contract.errors import LayoutError

_DATA = Path(__file__).parents[1] / "data" / "h200"
_RECORDINGS = (
    "serve-cupti130001",
    "serve-cupti130500",
    "graph-cupti130500",
    "streams-cupti130500",
    "stages-cupti130401",
)

# Written down from cupti_activity.h: name, offset, struct code.
_KERNEL10 = (
    "kind 0 i, shared_memory_config 5 B, registers_per_thread 6 H, partitioned_global_cache_requested 8 i, "
    "partitioned_global_cache_executed 12 i, start 16 Q, end 24 Q, completed 32 Q, device_id 40 I, context_id 44 I, "
    "stream_id 48 I, grid_x 52 i, grid_y 56 i, grid_z 60 i, block_x 64 i, block_y 68 i, block_z 72 i, "
    "static_shared_memory 76 i, dynamic_shared_memory 80 i, local_memory_per_thread 84 I, local_memory_total 88 I, "
    "correlation_id 92 I, grid_id 96 q, name 104 q, queued 120 Q, submitted 128 Q, launch_type 136 B, "
    "is_shared_memory_carveout_requested 137 B, shared_memory_carveout_requested 138 B, shared_memory_executed 140 I, "
    "graph_node_id 144 Q, shmem_limit_config 152 i, graph_id 156 I, p_access_policy_window 160 q, channel_id 168 I, "
    "channel_type 172 i, cluster_x 176 I, cluster_y 180 I, cluster_z 184 I, cluster_scheduling_policy 188 I, "
    "local_memory_total_v2 192 Q, max_potential_cluster_size 200 I, max_active_clusters 204 I"
)
_KERNEL13 = _KERNEL10 + (
    ", is_device_launched 208 B, priority 216 i, execution_model 224 I, source_graph_id 232 I, "
    "source_graph_node_id 240 Q"
)
_MEMCPY6 = (
    "kind 0 i, copy_kind 4 B, src_kind 5 B, dst_kind 6 B, flags_ 7 B, bytes 8 Q, start 16 Q, end 24 Q, device_id 32 I, "
    "context_id 36 I, stream_id 40 I, correlation_id 44 I, runtime_correlation_id 48 I, graph_node_id 64 Q, "
    "graph_id 72 I, channel_id 76 I, channel_type 80 i, is_device_launched 84 B, copy_count 88 Q"
)
_MEMCPY7 = _MEMCPY6 + ", source_graph_id 96 I, source_graph_node_id 104 Q"
_MEMSET4 = (
    "kind 0 i, value 4 I, bytes 8 Q, start 16 Q, end 24 Q, device_id 32 I, context_id 36 I, stream_id 40 I, "
    "correlation_id 44 I, flags_ 48 H, memory_kind 50 H, graph_node_id 64 Q, graph_id 72 I, channel_id 76 I, "
    "channel_type 80 i"
)
_MEMSET5 = _MEMSET4 + ", is_device_launched 84 B, source_graph_id 88 I, source_graph_node_id 96 Q"
_API = (
    "kind 0 i, cbid 4 I, start 8 Q, end 16 Q, process_id 24 I, thread_id 28 I, correlation_id 32 I, return_value 36 I"
)
_MARKER2 = "kind 0 i, flags_ 4 i, timestamp 8 Q, id 16 I, object_kind 20 i, name 40 q, domain 48 q"
_SYNCHRONIZATION2 = (
    "kind 0 i, type 4 i, start 8 Q, end 16 Q, correlation_id 24 I, context_id 28 I, stream_id 32 I, "
    "cuda_event_id 36 I, cuda_event_sync_id 40 Q, return_value 48 I"
)
_EXTERNAL = "kind 0 i, external_kind 4 i, external_id 8 Q, correlation_id 16 I"

_NEW_SIZES = {1: 112, 2: 104, 3: 248, 4: 40, 5: 40, 10: 248, 12: 56, 38: 56, 39: 24}
_OLD_SIZES = {1: 96, 2: 88, 3: 216, 4: 40, 5: 40, 10: 216, 12: 56, 38: 56, 39: 24}


@cache
def _load(name: str) -> tuple[bytes, dict[str, Any]]:
    with lzma.open(_DATA / f"{name}.bin.xz") as file:
        return file.read(), json.loads((_DATA / f"{name}.json").read_text())


def _naive(data: bytes, sizes: dict[int, int]) -> list[tuple[int, int]]:
    """(offset, kind) of each record, one after the other."""
    found, at = [], 0
    while at < len(data):
        kind = struct.unpack_from("<i", data, at)[0]
        found.append((at, kind))
        at += sizes[kind]
    return found


def _by_kind(activity: Activity) -> dict[tuple[int, ...], Records]:
    return {
        (3, 10): activity.kernels,
        (1,): activity.memcpys,
        (2,): activity.memsets,
        (12,): activity.markers,
        (39,): activity.externals,
        (4, 5): activity.apis,
        (38,): activity.synchronizations,
    }


@pytest.mark.parametrize("name", _RECORDINGS)
def test_counts_are_those_taken_when_recording(name: str) -> None:
    """Every recording of three CUPTI versions yields the records that its recorder counted."""
    data, about = _load(name)
    activity = decode(data, layout_for(about["cupti_version"]))
    expected = {int(kind): count for kind, count in about["counts"].items()}
    assert dict(activity.counts) == expected
    assert dict(activity.skipped) == {}
    assert activity.version == about["cupti_version"]
    lengths = {kinds: len(records) for kinds, records in _by_kind(activity).items()}
    assert lengths == {kinds: sum(expected.get(kind, 0) for kind in kinds) for kinds in lengths}


@pytest.mark.parametrize("name", _RECORDINGS)
def test_every_field_equals_a_reading_by_struct(name: str) -> None:
    """All fields of all kinds, on every record of small recordings and on 4,000 of each kind of large ones."""
    data, about = _load(name)
    new = about["cupti_version"] >= 130400
    fields = {
        (3, 10): _KERNEL13 if new else _KERNEL10,
        (1,): _MEMCPY7 if new else _MEMCPY6,
        (2,): _MEMSET5 if new else _MEMSET4,
        (12,): _MARKER2,
        (39,): _EXTERNAL,
        (4, 5): _API,
        (38,): _SYNCHRONIZATION2,
    }
    naive = _naive(data, _NEW_SIZES if new else _OLD_SIZES)
    activity = decode(data, layout_for(about["cupti_version"]))
    for kinds, records in _by_kind(activity).items():
        offsets = [at for at, kind in naive if kind in kinds]
        assert len(records) == len(offsets)
        rows = range(len(offsets))
        if len(offsets) > 25_000:
            rows = sorted(random.Random(7).sample(rows, 4000))  # type: ignore[assignment]  # noqa: S311 - a sample
        for field in fields[kinds].split(", "):
            column, place, code = field.split()
            read = struct.Struct("<" + code).unpack_from
            expected = [read(data, offsets[row] + int(place))[0] for row in rows]
            assert records[column][rows].tolist() == expected, f"{kinds} {column}"


def test_stretches_decode_alone_as_they_do_together() -> None:
    """Decoding buffers one by one and joining gives what decoding the joined buffers gives."""
    data, about = _load("streams-cupti130500")
    layout = layout_for(about["cupti_version"])
    whole = decode(data, layout)
    starts = [at for at, _ in _naive(data, _NEW_SIZES)]
    cuts = [0, starts[1], starts[2], starts[500], starts[501], starts[3000], len(data)]
    parts = [decode(memoryview(data)[a:b], layout) for a, b in pairwise(cuts)]
    for kinds, records in _by_kind(whole).items():
        assert b"".join(_by_kind(part)[kinds].tobytes() for part in parts) == records.tobytes()
    total: Counter[int] = sum((Counter(part.counts) for part in parts), Counter())
    assert dict(total) == dict(whole.counts)


def test_empty_buffer_has_no_records() -> None:
    """CUPTI may hand over a buffer without a record."""
    activity = decode(b"", layout_for(130001))
    assert dict(activity.counts) == {}
    assert all(len(records) == 0 for records in _by_kind(activity).values())
    assert activity.kernels.dtype.itemsize == 216


def test_records_own_their_bytes() -> None:
    """The buffer may be reused once it is decoded."""
    buffer = bytearray(_record(39, external_id=5))
    activity = decode(memoryview(buffer), layout_for(130500))
    buffer[:] = bytes(len(buffer))
    assert activity.externals["external_id"].tolist() == [5]


def _record(kind: int, size: int = 24, external_id: int = 0) -> bytes:
    return struct.pack("<iiQ", kind, 0, external_id).ljust(size, b"\0")


def test_driver_and_runtime_calls_keep_their_common_order() -> None:
    """Kinds 4 and 5 form one array in the order of the buffer; so do kinds 3 and 10."""
    data = b"".join(_record(kind, _NEW_SIZES[kind], n) for n, kind in enumerate([5, 10, 4, 4, 3, 5, 10]))
    activity = decode(data, layout_for(130500))
    assert activity.apis["kind"].tolist() == [5, 4, 4, 5]
    assert activity.apis["start"].tolist() == [0, 2, 3, 5]
    assert activity.kernels["kind"].tolist() == [10, 3, 10]


def test_kinds_that_are_not_decoded_are_stepped_over_and_counted() -> None:
    """A known kind (11, 32 bytes) and one whose size was stated (200, 48 bytes) do not stop the walk."""
    data = _record(11, 32) + _record(39, external_id=7) + _record(200, 48) * 2 + _record(39, external_id=8)
    activity = decode(data, layout_for(130500, {200: 48}))
    assert activity.externals["external_id"].tolist() == [7, 8]
    assert dict(activity.counts) == {11: 1, 39: 2, 200: 2}
    assert dict(activity.skipped) == {11: 1, 200: 2}


@pytest.mark.parametrize("kind", [0, 60, 200, 255, 256, 257, 2**31, 2**32 - 1])
@pytest.mark.parametrize("row", [0, 1, 1800, 3618])
def test_kind_of_unknown_size_is_refused_where_it_stands(kind: int, row: int) -> None:
    """The error names kind, version and the byte where the record starts, wherever in the buffer it is."""
    data, _ = _load("streams-cupti130500")
    at = _naive(data, _NEW_SIZES)[row][0]
    broken = bytearray(data)
    broken[at : at + 4] = struct.pack("<I", kind)
    with pytest.raises(LayoutError, match=f"at byte {at}: records of kind {kind} have no .* CUPTI 130500") as caught:
        decode(memoryview(broken), layout_for(130500))
    assert caught.value.offset == at


@pytest.mark.parametrize("records", [3, 3619])
def test_buffer_cut_at_any_byte_is_refused_at_its_last_record(records: int) -> None:
    """Whatever byte of its last three records a buffer ends at, the record that is cut is named."""
    data, _ = _load("streams-cupti130500")
    starts = [at for at, _ in _naive(data, _NEW_SIZES)] + [len(data)]
    layout = layout_for(130500)
    for length in range(starts[records - 3], starts[records]):
        if length in starts:
            decode(data[:length], layout)
            continue
        with pytest.raises(LayoutError, match=f"is cut: the buffer ends at byte {length};") as caught:
            decode(data[:length], layout)
        assert caught.value.offset == max(at for at in starts if at < length)


def test_records_of_another_version_do_not_pass() -> None:
    """13.5 bytes read as 13.0 end in an error."""
    data, _ = _load("streams-cupti130500")
    with pytest.raises(LayoutError, match="CUPTI 130001"):
        decode(data, layout_for(130001))


_FILLS = ("zeros", "noise", "kinds", "all 39", "same kind")


def _filled(kinds: list[int], sizes: dict[int, int], fill: str, seed: int) -> bytes:
    """Records whose contents are harmless, random, or made to look like records themselves."""
    rng = np.random.default_rng(seed)
    parts = []
    for kind in kinds:
        words = sizes[kind] // 4
        if fill == "noise":
            content = rng.integers(0, 2**32, words, np.uint32)
        elif fill == "kinds":
            content = rng.choice(np.array([1, 2, 10, 12, 38, 39], np.uint32), words)
        else:
            content = np.full(words, {"zeros": 0, "all 39": 39, "same kind": kind}[fill], np.uint32)
        content[0] = kind
        parts.append(content.astype("<u4").tobytes())
    return b"".join(parts)


@settings(deadline=None, max_examples=60)
@given(
    pattern=st.lists(st.sampled_from([1, 2, 3, 4, 5, 10, 11, 12, 38, 39, 59, 200]), min_size=1, max_size=12),
    repeats=st.integers(1, 600),
    fill=st.sampled_from(_FILLS),
    seed=st.integers(0, 2**32 - 1),
    shuffle=st.booleans(),
)
def test_walk_equals_reading_one_record_after_the_other(
    pattern: list[int], repeats: int, fill: str, seed: int, shuffle: bool
) -> None:
    """Any sequence of kinds with any contents, those that look like records included, is walked exactly."""
    sizes = {**_NEW_SIZES, 11: 32, 59: 304, 200: 48}
    kinds = pattern * repeats
    if shuffle:
        random.Random(seed).shuffle(kinds)  # noqa: S311 - test data
    data = _filled(kinds, sizes, fill, seed)
    found = walk(data, layout_for(130500, {200: 48}))
    assert list(zip(found.offsets.tolist(), found.kinds.tolist(), strict=True)) == _naive(data, sizes)


def test_bytes_made_to_mislead_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every word is a kind, guesses fail in many lanes: the slow way takes over, once and correctly."""
    calls: list[int] = []
    slow = walk_module._walk_small

    def counted(words: Any, sizes: Any) -> Any:
        calls.append(words.size)
        return slow(words, sizes)

    monkeypatch.setattr(walk_module, "_walk_small", counted)
    data = _filled([39] * 20_000, {39: 24}, "all 39", 0)
    found = walk(data, layout_for(130500))
    assert found.offsets.tolist() == list(range(0, len(data), 24))
    assert calls == [len(data) // 4]


@pytest.mark.parametrize("shift", [0, 2, 8, 4000])
def test_wrong_guesses_are_found_out_and_corrected(monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    """Lanes begun inside a record, on bytes that are no kind, or past their end are walked again rightly."""
    kinds = [10] * 60 + [39] * 300 + [10] * 60
    data = _filled(kinds, _NEW_SIZES, "zeros", 0)
    guess = walk_module._guess

    def misled(words: Any, sizes: Any, cuts: Any) -> Any:
        guessed = guess(words, sizes, cuts)
        guessed[len(guessed) // 2 - 3 : len(guessed) // 2 + 3] += shift
        return guessed

    monkeypatch.setattr(walk_module, "_guess", misled)
    found = walk(data, layout_for(130500))
    assert list(zip(found.offsets.tolist(), found.kinds.tolist(), strict=True)) == _naive(data, _NEW_SIZES)


def test_small_buffer_with_an_unknown_kind_is_refused_where_it_stands() -> None:
    """The same error from the walk of small buffers."""
    data = _record(39) + _record(12, 56) + _record(0) + _record(39)
    with pytest.raises(LayoutError, match=r"at byte 80: records of kind 0 .* check the CUPTI version") as caught:
        decode(data, layout_for(130500))
    assert caught.value.offset == 80


def test_recordings_are_walked_without_a_wrong_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """On real buffers every lane's start is guessed right, so each byte range is walked once."""
    rounds: list[int] = []
    lockstep = walk_module._lockstep

    def counted(words: Any, sizes: Any, begins: Any, ends: Any) -> Any:
        rounds.append(begins.size)
        return lockstep(words, sizes, begins, ends)

    monkeypatch.setattr(walk_module, "_lockstep", counted)
    for name in _RECORDINGS:
        data, about = _load(name)
        walk(data, layout_for(about["cupti_version"]))
    assert len(rounds) == len(_RECORDINGS)


def test_long_records_may_span_several_lanes() -> None:
    """Records of an unknown kind that are longer than a lane are stepped over."""
    sizes = {39: 24, 200: 65536}
    data = _filled([39, 200, 39, 39, 200] * 4, sizes, "kinds", 3)
    found = walk(data, layout_for(130500, {200: 65536}))
    assert list(zip(found.offsets.tolist(), found.kinds.tolist(), strict=True)) == _naive(data, sizes)


def test_marker_threads_follow_the_kind_of_object() -> None:
    """Process and thread ids are read where the marker says that it names them, else 0."""
    rows = [(2, 614, 0xBD4F8140), (1, 614, 99), (3, 1, 2), (0, 5, 5)]
    data = b"".join(struct.pack("<iiQIiIII12xqq", 12, 2, 1, 1, *row, 0, 0, 0)[:56].ljust(56, b"\0") for row in rows)
    markers = decode(data, layout_for(130500)).markers
    assert marker_threads(markers).tolist() == [(614 << 32) | 0xBD4F8140, 614 << 32, 0, 0]
    assert marker_threads(markers[:0]).shape == (0,)


def test_markers_of_a_recording_are_ranges_of_one_thread() -> None:
    """NVTX push and pop arrive as START and END of equal number, all from the serving thread."""
    data, about = _load("serve-cupti130500")
    markers = decode(data, layout_for(about["cupti_version"])).markers
    assert Counter(markers["flags_"].tolist()) == {MARKER_START: 354, MARKER_END: 354}
    assert set(marker_threads(markers).tolist()) == {(475 << 32) | 3581661504}
    assert MARKER_INSTANTANEOUS == 1
