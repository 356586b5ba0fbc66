"""Which producer a message is of, read from its first bytes: what the jobs partition their input by."""

from __future__ import annotations

import hashlib

from spanlite.contract.codec import FORMAT, decode_header
from spanlite.contract.errors import BatchError

_START = bytes([0x08, FORMAT, 0x12, 16])
"""Field 1 (format) as a varint, field 2 (producer) with its length: how every encoder of ours begins a message."""


def producer_of(message: bytes) -> bytes:
    """16 bytes of the producer; for what is no batch a hash of it, so that poison spreads over all partitions."""
    if message[:4] == _START and len(message) >= 20:
        return message[4:20]
    try:
        return decode_header(message).producer
    except BatchError:
        return hashlib.blake2b(message, digest_size=16).digest()
