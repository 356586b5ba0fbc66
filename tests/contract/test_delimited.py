"""Files of batches: protobuf's own delimited framing, judged by protobuf's library."""

from __future__ import annotations

import io

import pytest
from google.protobuf.internal.decoder import _DecodeVarint32  # type: ignore[attr-defined]
from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.delimited import read_delimited, write_delimited
from spanlite.contract.errors import BatchError

MOST = 1 << 20


def written(*values: bytes) -> bytes:
    stream = io.BytesIO()
    for value in values:
        write_delimited(stream, value)
    return stream.getvalue()


def read(data: bytes, most_bytes: int = MOST) -> list[bytes]:
    return list(read_delimited(io.BytesIO(data), most_bytes=most_bytes))


@given(st.lists(st.binary(max_size=300)))
def test_what_is_written_is_read(values: list[bytes]) -> None:
    """Proves the round trip, empty messages included."""
    assert read(written(*values)) == values


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 100_000])
def test_lengths_are_protobufs_varints(length: int) -> None:
    """Proves the prefix byte for byte against protobuf's encoder and decoder, on both sides of each boundary."""
    data = written(bytes(length))
    assert data == _VarintBytes(length) + bytes(length)
    assert _DecodeVarint32(data, 0) == (length, len(data) - length)


@pytest.mark.parametrize("kept", range(1, 300, 23))
def test_a_cut_file_gives_what_is_whole_and_then_says_so(kept: int) -> None:
    """Proves that every cut inside the second message is told from the end of the file."""
    first, second = b"first", bytes(300)
    stream = read_delimited(io.BytesIO(written(first, second)[: len(written(first)) + kept]), most_bytes=MOST)
    assert next(stream) == first
    with pytest.raises(BatchError, match="truncated") as caught:
        next(stream)
    assert caught.value.reason == "truncated"


def test_a_length_beyond_the_limit_is_refused_unread() -> None:
    """Proves that no memory is spent on what a prefix merely claims."""
    stream = io.BytesIO(_VarintBytes(1 << 31) + b"x")
    with pytest.raises(BatchError) as caught:
        next(read_delimited(stream, most_bytes=MOST))
    assert caught.value.reason == "message_bytes"
    assert stream.tell() == 5
    assert read(written(bytes(10)), most_bytes=10) == [bytes(10)]
    with pytest.raises(BatchError):
        read(written(bytes(11)), most_bytes=10)


def test_another_format_is_said_to_be_one() -> None:
    """Proves that a length without an end is refused after five bytes."""
    with pytest.raises(BatchError) as caught:
        read(b"\xff" * 100)
    assert caught.value.reason == "not_delimited"


def test_nothing_holds_no_messages() -> None:
    """Proves that an empty file is a file of no batches."""
    assert read(b"") == []
