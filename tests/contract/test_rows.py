"""Spans one by one, as people see them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from spanlite.contract.codec import decode_batch
from spanlite.contract.rows import span_rows

_GOLDEN = Path(__file__).parents[1] / "golden" / "batch_v1.bin"
_MASK = 2**64 - 1


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def test_a_kernel_is_told_with_everything_that_is_known() -> None:
    """Row 1 of the golden batch, field by field; ids by the scalar rule."""
    span = list(span_rows(decode_batch(_GOLDEN.read_bytes())))[1]
    session = 0x0123456789ABCDEF
    assert span["span_id"] == f"{_mix(session ^ 8193):016x}"
    assert span["parent_span_id"] == f"{_mix(session ^ (2**63 + 5)):016x}"
    assert span["trace_id"] == "00112233445566778899aabbccddeeff"
    assert (span["kind"], span["kernel"], span["name"]) == ("kernel", "gemm", "_Z4gemmILi1EEvPf")
    assert (span["start_unix_ns"], span["duration_ns"]) == (1_795_958_731_643_648_170, 2_000)
    assert (span["stage"], span["correlation_id"], span["weight"], span["bytes"]) == ("decode", 101, 1, 0)
    assert (span["config"]["grid_x"], span["config"]["block_x"]) == (132, 256)
    assert span["config"]["limiter"] == "registers"
    assert span["theoretical_occupancy"] == 0.5
    assert (span["place"]["gpu"], span["place"]["stream_id"], span["place"]["priority"]) == ("GPU-12345678", 7, -5)


def test_a_range_is_host_time_without_launch_or_gpu() -> None:
    """Row 0: no configuration, no occupancy, an empty GPU; its id is that of its number."""
    span = next(span_rows(decode_batch(_GOLDEN.read_bytes())))
    assert (span["kind"], span["name"], span["parent_span_id"]) == ("range", "request:7", "")
    assert span["span_id"] == f"{_mix(0x0123456789ABCDEF ^ (2**63 + 5)):016x}"
    assert (span["config"], span["theoretical_occupancy"], span["place"]["gpu"]) == (None, None, "")
    assert span["place"]["thread_id"] == 18_446_744_073_709_551_610


def test_rows_come_in_order_and_are_json() -> None:
    """Seven rows with their kinds; a row outside all traces says so with an empty id."""
    spans = [json.loads(json.dumps(span)) for span in span_rows(decode_batch(_GOLDEN.read_bytes()))]
    assert [s["kind"] for s in spans] == ["range", "kernel", "kernel", "kernel", "memcpy", "memset", "kernel"]
    assert [s["bytes"] for s in spans] == [0, 0, 0, 0, 1_048_576, 64, 0]
    assert [bool(s["trace_id"]) for s in spans] == [True] * 5 + [False] * 2
    assert spans[6]["weight"] == 8


def test_a_batch_without_rows_has_none() -> None:
    """Nothing to see."""
    batch = decode_batch(_GOLDEN.read_bytes())
    assert list(span_rows(replace(batch, columns=batch.columns.take(slice(0, 0))))) == []
