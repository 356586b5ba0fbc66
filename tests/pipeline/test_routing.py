"""Which partition a message goes to: all of a producer to one, poison to any."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_header, encode_batch
from spanlite.contract.errors import BatchError
from spanlite.pipeline.routing import producer_of
from spanlite.v1 import batch_pb2
from tests.contract.columns_strategy import batches
from tests.contract.mutations import Mutator
from tests.pipeline.conftest import Span, make_batch

PRODUCER = b"\x12\x10\x08\x01producer...."


@settings(max_examples=100, deadline=None)
@given(batches())
def test_any_batch_goes_where_its_header_says(batch: Batch) -> None:
    """The first bytes of an encoded batch say the same as the decoded header."""
    message = encode_batch(batch)
    assert producer_of(message) == decode_header(message).producer == batch.producer


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=16, max_size=16), st.permutations(range(3)))
def test_the_order_of_fields_does_not_matter(producer: bytes, order: list[int]) -> None:
    """Another encoder may write a batch's fields in another order, as protobuf allows."""
    fields = [
        batch_pb2.SpanBatch(format=1),
        batch_pb2.SpanBatch(producer=producer),
        batch_pb2.SpanBatch(sequence=7, rows=3),
    ]
    message = b"".join(fields[at].SerializeToString() for at in order)
    assert producer_of(message) == decode_header(message).producer == producer


def test_of_damaged_batches_those_that_can_be_read_stay_with_their_producer() -> None:
    """Of 2,000 damaged messages none raises; where the header can be read, its producer is the one, but for a second
    name behind the first, which the fold refuses."""
    mutator = Mutator(11)
    read = 0
    for _ in range(2000):
        message = mutator.next()
        found = producer_of(message)
        assert len(found) == 16
        try:
            producer = decode_header(message).producer
        except BatchError:
            continue
        read += 1
        assert found in (producer, message[4:20])
    assert read > 200


def test_poison_spreads() -> None:
    """Messages that are no batch get as many names as there are messages, the same each time, over all partitions."""
    poison = [f"poison {number}".encode() for number in range(4000)] + [b"", b"\x08\x01\x12\x10short"]
    names = [producer_of(message) for message in poison]
    assert names == [producer_of(message) for message in poison]
    assert len(set(names)) == len(poison)
    share = Counter(name[0] % 8 for name in names)
    assert min(share.values()) > 400


def test_a_producer_s_damaged_body_stays_with_it() -> None:
    """A batch cut in its body is dead where its producer's batches are, so the order of both is kept."""
    message = encode_batch(make_batch([Span(0)], producer=PRODUCER))
    assert {producer_of(message[:size]) for size in range(20, len(message) + 1)} == {PRODUCER}
    assert producer_of(message[:19]) != PRODUCER
