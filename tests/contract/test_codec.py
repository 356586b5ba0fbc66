"""Batches to bytes and back: nothing is lost, and what later versions add is skipped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from google.protobuf.internal import api_implementation
from hypothesis import HealthCheck, given, settings

from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, decode_header, encode_batch
from spanlite.contract.columns import SpanColumns, empty_table, equal, make_columns
from spanlite.v1 import batch_pb2
from tests.contract.columns_strategy import HIGHEST, LOWEST, batches, sample_batch
from tests.contract.mutations import unwrap, wrap


def _assert_same(left: Batch, right: Batch) -> None:
    assert equal(left.columns, right.columns)
    assert replace(left, columns=right.columns, resource=dict(left.resource)) == right


def _with(batch: Batch, **columns: object) -> Batch:
    return replace(batch, columns=replace(batch.columns, **columns))  # type: ignore[arg-type]  # columns by name


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(batches())
def test_every_batch_comes_back_to_the_bit(batch: Batch) -> None:
    """Any rows in any order, any kinds, values to the edge of each type, any text: error 0 in every column."""
    _assert_same(batch, decode_batch(encode_batch(batch)))


@pytest.mark.parametrize("rows", [0, 1, 2, 8192, 65536])
def test_batches_of_every_size_come_back(rows: int) -> None:
    """From an empty batch to the largest that a reader takes, with all kinds and weights."""
    batch = sample_batch(rows)
    _assert_same(batch, decode_batch(encode_batch(batch)))


def test_the_edges_of_time_come_back() -> None:
    """Starts at both ends of int64 beside the longest duration: sums wrap on the way out and back in."""
    ends = np.array([LOWEST, HIGHEST, 0, -1, LOWEST, HIGHEST], dtype=np.int64)
    durations = np.array([HIGHEST, HIGHEST, 0, 1, 0, HIGHEST], dtype=np.int64)
    batch = sample_batch(6)
    for order in (slice(None), slice(None, None, -1)):
        extreme = _with(batch, start_ns=ends[order].copy(), duration_ns=durations[order].copy())
        _assert_same(extreme, decode_batch(encode_batch(extreme)))


def test_rows_in_no_order_keep_their_order() -> None:
    """Overlapping and shuffled rows are not sorted on the way."""
    batch = sample_batch(5000)
    shuffled = replace(batch, columns=batch.columns.take(np.random.default_rng(2).permutation(5000)))
    _assert_same(shuffled, decode_batch(encode_batch(shuffled)))


def test_thousands_of_traces_in_one_batch_come_back() -> None:
    """One trace for every other row: indexes need two bytes, ids 16."""
    batch = sample_batch(8192, traces=4096)
    _assert_same(batch, decode_batch(encode_batch(batch)))


def test_long_and_foreign_texts_come_back() -> None:
    """A text at the limit of 1 MiB, emoji, NUL and quotes are texts like any other."""
    strings = ("", "x" * (1 << 20), "é" * (1 << 19), "核🔥\x00\"'\n", *(f"k{at}" for at in range(1000)), "", "", "z")
    batch = _with(sample_batch(64), strings=strings)
    assert decode_batch(encode_batch(batch)).columns.strings == strings


def test_a_batch_without_rows_needs_no_tables() -> None:
    """A heartbeat of a process that launches nothing."""
    empty = sample_batch(0).columns
    none = np.zeros(0, dtype=np.int64)
    tables = (("",), *(empty_table(getattr(empty, name).dtype) for name in ("configs", "places", "nodes", "traces")))
    columns: SpanColumns = make_columns(none, none, tables=tables)  # type: ignore[arg-type]  # four tables
    batch = replace(sample_batch(0), columns=columns, gpus=(), resource={})
    _assert_same(batch, decode_batch(encode_batch(batch)))


def test_a_weight_column_is_only_sent_where_weights_differ_from_one() -> None:
    """Unsampled batches pay nothing for weights."""
    batch = sample_batch(100)
    plain = _with(batch, weight=np.ones(100, dtype=np.uint32))
    assert not batch_pb2.SpanColumns.FromString(unwrap(encode_batch(plain))[1]).HasField("weight")
    assert batch_pb2.SpanColumns.FromString(unwrap(encode_batch(batch))[1]).HasField("weight")


def test_an_absent_weight_column_means_the_header_s_weight() -> None:
    """A writer that samples evenly may say so once, in the header."""
    header, body = unwrap(encode_batch(_with(sample_batch(3), weight=np.ones(3, dtype=np.uint32))))
    header.sampling.weight = 20
    assert decode_batch(wrap(header, body)).columns.weight.tolist() == [20, 20, 20]


def test_encoding_is_deterministic() -> None:
    """The same batch gives the same bytes, whatever order its attributes came in: repeats can be compared."""
    batch = sample_batch(200)
    turned = replace(batch, resource=dict(reversed(list(batch.resource.items()))))
    assert encode_batch(batch) == encode_batch(turned)


def test_encoding_leaves_its_input_alone() -> None:
    """Columns are shared between consumers; the codec must not write into them."""
    batch, twin = sample_batch(500), sample_batch(500)
    encode_batch(batch)
    assert equal(batch.columns, twin.columns)


def test_fields_that_later_versions_add_are_skipped() -> None:
    """Unknown fields in header, body, tables and columns change nothing for an old reader."""
    batch = sample_batch(50)
    header, body = unwrap(encode_batch(batch))
    number_2000, text_2001 = b"\x80\x7d\x2a", b"\x8a\x7d\x03new"
    columns = batch_pb2.SpanColumns.FromString(body)
    columns.configs.MergeFromString(number_2000 + text_2001)
    columns.gap.MergeFromString(text_2001)
    columns.traces.MergeFromString(number_2000)
    data = wrap(header, columns.SerializeToString() + number_2000 + text_2001) + text_2001 + number_2000
    _assert_same(batch, decode_batch(data))


def test_a_body_may_come_uncompressed() -> None:
    """compression NONE: for writers without zstd."""
    batch = sample_batch(50)
    header, body = unwrap(encode_batch(batch))
    header.compression, header.body = batch_pb2.COMPRESSION_NONE, body
    _assert_same(batch, decode_batch(header.SerializeToString()))


def test_the_header_alone_names_and_orders_a_batch() -> None:
    """A duplicate can be dropped without decompressing its body, even when that is broken."""
    message = batch_pb2.SpanBatch.FromString(encode_batch(sample_batch(5)))
    message.body = b"broken"
    header = decode_header(message.SerializeToString())
    assert (header.producer, header.sequence, header.rows) == (bytes(range(16)), 41, 5)


def test_span_ids_survive_the_wire() -> None:
    """Ids are derived on both sides from the same numbers, so they are equal without being sent."""
    batch = sample_batch(300)
    decoded = decode_batch(encode_batch(batch))
    assert decoded.span_ids.tolist() == batch.span_ids.tolist()
    assert decoded.parent_span_ids.tolist() == batch.parent_span_ids.tolist()
    assert len(set(decoded.span_ids.tolist())) == 300


def test_protobuf_runs_on_upb() -> None:
    """The sizes and speeds that are told hold for protobuf's C core, not for its slow Python fall-back."""
    assert api_implementation.Type() == "upb"
