"""Damage to encoded batches: to the bytes on the wire, to the decompressed body, and to single fields of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import zstandard

from spanlite.contract.codec import encode_batch
from spanlite.v1 import batch_pb2
from tests.contract.columns_strategy import sample_batch

_EDGES = (0, 1, 2, 127, 128, 255, 256, 65535, 65536, 65537, 2**31 - 1, 2**31, 2**32 - 1)
_BASES = (0, 1, -1, 4, 5, 255, 2**31, 2**32, 2**63 - 1, -(2**63))


def corpus() -> list[bytes]:
    """Sound batches to start from: none, one, few and several hundred rows."""
    return [encode_batch(sample_batch(rows, seed)) for seed, rows in enumerate((0, 1, 7, 64, 300))]


def unwrap(data: bytes) -> tuple[batch_pb2.SpanBatch, bytes]:
    """Header message and decompressed body."""
    header = batch_pb2.SpanBatch.FromString(data)
    return header, zstandard.ZstdDecompressor().decompress(header.body)


def wrap(header: batch_pb2.SpanBatch, body: bytes) -> bytes:
    """The header with another body, its size and frame put right."""
    header.body, header.body_size = zstandard.ZstdCompressor(level=1).compress(body), len(body)
    return header.SerializeToString()


class Mutator:
    """An endless, repeatable supply of damaged batches."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._whole = corpus()
        self._bodies = [unwrap(data)[1] for data in self._whole]
        self._ways = (self._flip, self._cut, self._splice, self._set, self._insert, self._drop)

    def next(self) -> bytes:
        """One damaged batch: a third each at the wire, in the body, in one field."""
        layer, which = int(self._rng.integers(3)), int(self._rng.integers(len(self._whole)))
        if layer == 0:
            return self._damage(self._whole[which], self._whole)
        header = batch_pb2.SpanBatch.FromString(self._whole[which])
        if layer == 1:
            return wrap(header, self._damage(self._bodies[which], self._bodies))
        body = batch_pb2.SpanColumns.FromString(self._bodies[which])
        for _ in range(self._below(3) + 1):
            if self._below(4):
                self._field_of_body(body)
            else:
                self._field_of_header(header)
        return wrap(header, body.SerializeToString())

    def _below(self, bound: int) -> int:
        return int(self._rng.integers(max(bound, 1)))

    def _pick(self, values: tuple[int, ...]) -> int:
        return values[self._below(len(values))]

    def _damage(self, data: bytes, others: list[bytes]) -> bytes:
        for _ in range(self._below(3) + 1):
            data = self._ways[self._below(len(self._ways))](data, others)
        return data

    def _flip(self, data: bytes, _: list[bytes]) -> bytes:
        damaged = bytearray(data)
        for _count in range(self._below(8) + 1):
            if damaged:
                damaged[self._below(len(damaged))] ^= 1 << self._below(8)
        return bytes(damaged)

    def _cut(self, data: bytes, _: list[bytes]) -> bytes:
        return data[: self._below(len(data))]

    def _splice(self, data: bytes, others: list[bytes]) -> bytes:
        other = others[self._below(len(others))]
        return data[: self._below(len(data))] + other[self._below(len(other)) :]

    def _set(self, data: bytes, _: list[bytes]) -> bytes:
        """Overwrites a byte with one that reads as another length, often near the front, where the lengths are."""
        damaged = bytearray(data)
        if damaged:
            reach = len(damaged) if self._below(2) else min(len(damaged), 64)
            damaged[self._below(reach)] = self._pick((0, 1, 0x7F, 0x80, 0xFF))
        return bytes(damaged)

    def _insert(self, data: bytes, _: list[bytes]) -> bytes:
        at = self._below(len(data))
        return data[:at] + self._rng.bytes(self._below(16) + 1) + data[at:]

    def _drop(self, data: bytes, _: list[bytes]) -> bytes:
        at = self._below(len(data))
        return data[:at] + data[at + self._below(16) + 1 :]

    def _field_of_body(self, body: batch_pb2.SpanColumns) -> None:
        holder: Any = (body, body.configs, body.places, body.nodes, body.traces)[self._below(5)]
        names = [f.name for f in holder.DESCRIPTOR.fields if f.message_type and f.message_type.name == "Column"]
        if holder is not body and not self._below(4):
            holder.rows = self._pick(_EDGES)
            return
        column = getattr(holder, names[self._below(len(names))])
        what = self._below(4)
        if what == 0:
            column.width = self._pick((*range(10), 2**32 - 1))
        elif what == 1:
            column.base = self._pick(_BASES)
        elif what == 2:
            column.planes = self._rng.bytes(len(column.planes) or self._below(64))
        else:
            column.width, column.base, column.planes = 0, self._pick(_BASES), b""

    def _field_of_header(self, header: batch_pb2.SpanBatch) -> None:
        what = self._below(6)
        if what == 0:
            header.rows = self._pick(_EDGES)
        elif what == 1:
            header.first_row = self._pick((0, 2**63 - 1, 2**63, 2**64 - 1))
        elif what == 2:
            header.first_start_unix_ns = self._pick(_BASES)
        elif what == 3:
            del header.gpus[self._below(3) :]
        elif what == 4:
            header.sampling.weight = self._pick(_EDGES)
        else:
            header.format = self._pick((0, 1, 1, 2, 2**32 - 1))
