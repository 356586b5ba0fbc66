"""Observations from frames to batches: what a record means, what is dropped and why, and that everything is counted."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent import recorder
from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import OBSERVATION, Frame, pack_names, pack_text
from spanlite.agent.observations import MOST_INCREMENT, MOST_TIMING_NS, Observations, unpack_observations
from spanlite.agent.validate import DEFAULT_HORIZON_NS
from spanlite.contract import catalogue
from spanlite.contract.batch import Gpu
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import Kind, SpanColumns, equal
from spanlite.contract.errors import FrameError
from spanlite.contract.rows import span_rows
from spanlite.pipeline.plausible import check_batch
from tests.agent.playing import HELLO, process, take

NOW = 1_700_000_000 * 10**9
NAMES = {1: 'b_ms{sequence="7",layer="3"}', 2: "tokens", 3: "loss"}
_RECORD = struct.Struct("<QqqII")
_FLOAT = struct.Struct("<QqdII")


def taken(payload: bytes, counts: AgentCounts | None = None, names: dict[int, str] | None = None) -> list[SpanColumns]:
    """Columns of records, by a host of two GPUs with ids 0 and 5."""
    observations = Observations((Gpu("GPU-0", 0), Gpu("GPU-5", 5)), counts or AgentCounts())
    return list(observations.take(unpack_observations(payload), names or NAMES, NOW))


def test_records_are_those_that_the_client_packs() -> None:
    """Both ends agree on size and place of each field."""
    assert OBSERVATION.itemsize == recorder.SIZE == 32
    assert int(Frame.OBSERVATIONS) == recorder.OBSERVATIONS == 8
    record = np.frombuffer(recorder.INTEGER.pack(1, -2, -3, 4, 5), dtype=OBSERVATION)
    assert record.tolist() == [(1, -2, -3, 4, 5)]
    assert np.frombuffer(recorder.NUMBER.pack(1, 2, 0.5, 4, 5), dtype=OBSERVATION)["value"].view(float) == 0.5


def test_a_batch_of_observations() -> None:
    """Timings last, counters and gauges have their value for bytes; names, places and times are as they were told."""
    traced = process({"cupti_version": "0"})
    payload = (
        _RECORD.pack(1, 30, 1500, Kind.TIMING, 0)
        + _RECORD.pack(2, 10, 17, Kind.COUNTER, 1)
        + _FLOAT.pack(3, 20, -0.25, Kind.GAUGE, 2)
    )
    frames = [(Frame.NAMES, pack_names(NAMES)), (Frame.OBSERVATIONS, payload)]
    (batch,) = (decode_batch(encode_batch(each)) for each in take(traced, frames))
    check_batch(batch)
    told = [
        (
            r["kind"],
            r["name"],
            r["kernel"],
            r["start_unix_ns"],
            r["duration_ns"],
            r["bytes"],
            r.get("value"),
            r["place"]["gpu"],
        )
        for r in span_rows(batch)
    ]
    assert told == [
        ("counter", "tokens", "tokens", 10, 0, 17, None, "GPU-0"),
        ("gauge", "loss", "loss", 20, 0, 0, -0.25, "GPU-1"),
        ("timing", 'b_ms{layer="3",sequence="7"}', "b_ms", 30, 1500, 0, None, ""),
    ]
    assert all(row["config"] is None for row in span_rows(batch))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (_RECORD.pack(2, NOW, 1, 0, 0), "kind"),
        (_RECORD.pack(2, NOW, 1, Kind.RANGE, 0), "kind"),
        (_RECORD.pack(2, NOW, 1, 261, 0), "kind"),
        (_RECORD.pack(2, NOW - DEFAULT_HORIZON_NS - 1, 1, Kind.COUNTER, 0), "time"),
        (_RECORD.pack(2, NOW + DEFAULT_HORIZON_NS + 1, 1, Kind.COUNTER, 0), "time"),
        (_RECORD.pack(2, -(2**63), 1, Kind.COUNTER, 0), "time"),
        (_RECORD.pack(2, NOW, -1, Kind.COUNTER, 0), "value"),
        (_RECORD.pack(2, NOW, MOST_INCREMENT + 1, Kind.COUNTER, 0), "value"),
        (_RECORD.pack(1, NOW, MOST_TIMING_NS + 1, Kind.TIMING, 0), "value"),
        (_RECORD.pack(9, NOW, 1, Kind.COUNTER, 0), "name"),
        (_RECORD.pack(4, NOW, 1, Kind.COUNTER, 0), "name"),
    ],
)
def test_a_bad_record_is_dropped_and_the_next_one_is_not(record: bytes, reason: str) -> None:
    """Each reason is counted, among the spans as well, so that what is received is sent or dropped."""
    counts = AgentCounts()
    (columns,) = taken(record + _RECORD.pack(2, NOW, 3, Kind.COUNTER, 7), counts, {**NAMES, 4: "no series {"})
    assert columns.bytes.tolist() == [3]
    assert (int(columns.places["gpu"][0]), int(columns.places["device_id"][0])) == (0, 6)
    assert counts.by_label(catalogue.AGENT_OBSERVATIONS_DROPPED) == {reason: 1}
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {f"observation_{reason}": 1}
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == counts.value(catalogue.AGENT_OBSERVATIONS_RECEIVED) == 2


def test_series_of_a_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the cap is dropped and counted; what was known goes on."""
    monkeypatch.setattr("spanlite.agent.observations.MOST_SERIES", 2)
    counts = AgentCounts()
    payload = b"".join(_RECORD.pack(number, NOW, number, Kind.COUNTER, 0) for number in (1, 2, 3, 1))
    (columns,) = taken(payload, counts)
    assert columns.bytes.tolist() == [1, 2, 1]
    assert counts.by_label(catalogue.AGENT_OBSERVATIONS_DROPPED) == {"series_cap": 1}


@given(
    st.lists(st.tuples(st.sampled_from([Kind.COUNTER, Kind.TIMING]), st.integers(0, 2**47)), min_size=1, max_size=50)
)
def test_no_batch_claims_what_the_pipeline_refuses(values: list[tuple[Kind, int]]) -> None:
    """However much is observed at a time, it is cut into batches that are accepted, and nothing is lost."""
    counters = [value * 64 if kind == Kind.COUNTER else value for kind, value in values]
    payload = b"".join(_RECORD.pack(1, 5, value, kind, 0) for (kind, _), value in zip(values, counters, strict=True))
    traced = process({"cupti_version": "0"})
    batches = take(traced, [(Frame.NAMES, pack_names(NAMES)), (Frame.OBSERVATIONS, payload)])
    for batch in batches:
        check_batch(batch)
        assert equal(decode_batch(encode_batch(batch)).columns, batch.columns)
    assert sum(int(b.columns.bytes.sum() + b.columns.duration_ns.sum()) for b in batches) == sum(counters)


def test_the_greatest_increments_are_accepted() -> None:
    """Each limit by itself is within what a batch may claim."""
    payload = (
        _RECORD.pack(2, 5, MOST_INCREMENT, Kind.COUNTER, 0) * 40
        + _RECORD.pack(1, 5, MOST_TIMING_NS, Kind.TIMING, 0) * 5
    )
    batches = take(process({"cupti_version": "0"}), [(Frame.NAMES, pack_names(NAMES)), (Frame.OBSERVATIONS, payload)])
    for batch in batches:
        check_batch(batch)
    assert sum(len(batch.columns) for batch in batches) == 45


@given(st.binary(max_size=200))
def test_noise_is_counted_or_refused(payload: bytes) -> None:
    """Whatever a frame holds, each whole record is received, and kept or dropped."""
    counts = AgentCounts()
    if len(payload) % 32:
        with pytest.raises(FrameError, match="32-byte records"):
            taken(payload, counts)
        return
    kept = sum(map(len, taken(payload, counts)))
    assert kept + counts.value(catalogue.AGENT_OBSERVATIONS_DROPPED) == len(payload) // 32


@pytest.mark.parametrize("kind", [Frame.BUFFER, Frame.RANGES, Frame.WINDOWS])
def test_a_client_without_cupti_sends_none_of_its_records(kind: Frame) -> None:
    """Their layout would be a guess."""
    with pytest.raises(FrameError, match="no CUPTI"):
        take(process({"cupti_version": "0"}), [(kind, b"")])


def test_what_a_program_dropped_is_counted() -> None:
    """Its STATS tell: received and dropped, under the reason."""
    counts = AgentCounts()
    take(
        process({**HELLO, "cupti_version": "0"}, counts), [(Frame.STATS, pack_text({"dropped.observation_full": "7"}))]
    )
    assert counts.by_label(catalogue.AGENT_OBSERVATIONS_DROPPED) == {"full": 7}
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {"observation_full": 7}
    assert counts.value(catalogue.AGENT_OBSERVATIONS_RECEIVED) == counts.value(catalogue.AGENT_SPANS_RECEIVED) == 7
