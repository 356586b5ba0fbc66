"""Files of batches: SpanBatch messages one after another, each behind its length as a protobuf varint.

It is the framing of protobuf's own writeDelimitedTo, so every language reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from spanlite.contract.errors import BatchError

_MOST_VARINT_BYTES = 5


def write_delimited(stream: BinaryIO, value: bytes) -> None:
    """Appends a message."""
    length = len(value)
    prefix = bytearray()
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    stream.write(bytes(prefix) + value)


def read_delimited(stream: BinaryIO, *, most_bytes: int) -> Iterator[bytes]:
    """The messages of a stream.

    Raises:
        BatchError: reason message_bytes for one longer than `most_bytes`, truncated for a stream that ends inside one.
    """
    while (length := _read_length(stream)) is not None:
        if length > most_bytes:
            raise BatchError("message_bytes", f"a message of {length} bytes, the limit is {most_bytes}")
        value = stream.read(length)
        if len(value) < length:
            raise BatchError("truncated", f"the file ends {length - len(value)} bytes inside a message")
        yield value


def _read_length(stream: BinaryIO) -> int | None:
    length = 0
    for at in range(_MOST_VARINT_BYTES):
        byte = stream.read(1)
        if not byte:
            if at == 0:
                return None
            raise BatchError("truncated", "the file ends inside a length")
        length |= (byte[0] & 0x7F) << (7 * at)
        if byte[0] < 0x80:
            return length
    raise BatchError("not_delimited", "a length of more than 5 bytes: this is no file of batches")
