"""The look at protobuf bytes before they are parsed."""

from __future__ import annotations

import pytest

from spanlite.contract.errors import BatchError
from spanlite.contract.wire import HARMLESS_BYTES, check_field_count
from spanlite.v1 import batch_pb2

_GPU = b"\x6a\x00"
"""Field 13 of SpanBatch, an empty message: two bytes."""


def test_short_messages_are_not_looked_through() -> None:
    """Up to 256 KiB the count does not matter: every real batch passes untouched."""
    check_field_count(_GPU * (HARMLESS_BYTES // 2), 1, "it")


def test_fields_are_counted_to_the_limit() -> None:
    """As many as allowed pass, one more does not, and the message says whose."""
    count = HARMLESS_BYTES // 2 + 1
    check_field_count(_GPU * count, count, "the header")
    with pytest.raises(BatchError, match=f"fields: the header has more than {count - 1} fields"):
        check_field_count(_GPU * count, count - 1, "the header")


def test_fields_of_every_kind_are_stepped_over() -> None:
    """A real header with a long body: as many fields as protobuf wrote, whatever lies inside of them."""
    message = batch_pb2.SpanBatch(
        format=1,
        producer=b"p" * 16,
        sequence=2**63,
        session=2**64 - 1,
        emit_unix_ns=-1,
        resource={"a": "b", "c": "d"},
        gpus=[batch_pb2.Gpu(uuid="x")] * 3,
        body=_GPU * HARMLESS_BYTES,
    )
    data = message.SerializeToString() + b"\x85\x7d\x00\x00\x00\x00"  # and an unknown fixed32
    check_field_count(data, 12, "it")
    with pytest.raises(BatchError, match="more than 11"):
        check_field_count(data, 11, "it")


@pytest.mark.parametrize(
    "end", [b"\x08", b"\x08" + b"\xff" * 20, b"\x6a\xff\xff\xff\xff\x0f", b"\x88" * 9, b"\x6a\x7f"]
)
def test_a_damaged_end_is_left_to_the_parser(end: bytes) -> None:
    """Cut varints and lengths beyond the end stop the count; the parser says what is wrong."""
    check_field_count(b"\x82\x01\x80\x80\x10" + bytes(HARMLESS_BYTES) + end, 2, "it")


@pytest.mark.parametrize("tag", [b"\x0b", b"\x0c", b"\x0e", b"\x0f"])
def test_groups_and_unknown_wire_types_are_refused(tag: bytes) -> None:
    """Nested groups would hide fields from the count, and no layout has any."""
    with pytest.raises(BatchError) as caught:
        check_field_count(tag + bytes(HARMLESS_BYTES), 2, "it")
    assert caught.value.reason == "fields"
