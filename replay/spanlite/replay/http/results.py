"""A file with one row a request: Parquet, or JSON lines."""

from __future__ import annotations

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanlite.contract.columns import Int64
from spanlite.contract.errors import UsageError
from spanlite.replay.checkpoint import sync_folder
from spanlite.replay.http.outcomes import ERRORS, Rows

_GROUP_ROWS = 1 << 15
_TIMES = ("due_ns", "sent_ns", "first_byte_ns", "done_ns")
SCHEMA = pa.schema(
    [
        pa.field("trace_id", pa.binary(16), nullable=False),
        pa.field("due_ns", pa.int64(), nullable=False),
        pa.field("sent_ns", pa.int64()),
        pa.field("first_byte_ns", pa.int64()),
        pa.field("done_ns", pa.int64()),
        pa.field("status", pa.int16()),
        pa.field("error", pa.string()),
        pa.field("request_bytes", pa.int64(), nullable=False),
        pa.field("response_bytes", pa.int64(), nullable=False),
    ]
)


class _Writer(Protocol):
    def write(self, table: Any) -> None: ...

    def close(self) -> None: ...


class Results:
    """The file, as a context: under its name once it is left, whatever ended the run, if it could be written.

    Raises:
        UsageError: it cannot be written, or its name ends in neither .parquet nor .jsonl.
    """

    def __init__(self, path: Path, *, unix_offset_ns: int) -> None:
        """`unix_offset_ns`: from monotonic time to Unix time."""
        if path.suffix not in (".parquet", ".jsonl"):
            raise UsageError(f"--results {path}: name it ….parquet or ….jsonl")
        self._path = path
        self._part = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._offset_ns = unix_offset_ns
        self._held: list[Rows] = []
        self._thread = ThreadPoolExecutor(1, "spanlite-replay-results")
        self._pending: Future[None] | None = None
        try:
            self._writer: _Writer = (
                pq.ParquetWriter(self._part, SCHEMA, compression="zstd")
                if path.suffix == ".parquet"
                else _Lines(self._part)
            )
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}; choose another file") from error

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with self._thread:
                self._hand_on()
                self._wait()
            self._writer.close()
            self._part.replace(self._path)
        except OSError as error:
            self._part.unlink(missing_ok=True)
            raise UsageError(f"cannot write {self._path}: {error.strerror or error}; choose another file") from error
        sync_folder(self._path.parent)

    def write(self, rows: Rows) -> None:
        """Adds rows; many of them are written together, in a thread of their own.

        Raises:
            OSError: those before them could not be written.
        """
        self._held.append(rows)
        if sum(map(len, self._held)) >= _GROUP_ROWS:
            self._hand_on()

    def _hand_on(self) -> None:
        self._wait()
        if self._held:
            held, self._held = self._held, []
            self._pending = self._thread.submit(self._write, held)

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.result()

    def _write(self, held: list[Rows]) -> None:
        rows = Rows(*(np.concatenate([getattr(one, field.name) for one in held]) for field in fields(Rows)))
        names = np.array([name or None for name in ERRORS], dtype=object)
        columns = [
            pa.Array.from_buffers(pa.binary(16), len(rows), [None, pa.py_buffer(rows.trace)]),
            *(self._unix(getattr(rows, name)) for name in _TIMES),
            pa.array(rows.status.astype(np.int16), mask=rows.status == 0),
            pa.array(names[rows.error], pa.string()),
            pa.array(rows.request_bytes),
            pa.array(rows.response_bytes),
        ]
        self._writer.write(pa.Table.from_arrays(columns, schema=SCHEMA))

    def _unix(self, times_ns: Int64) -> Any:
        return pa.array(times_ns + self._offset_ns, mask=times_ns == 0)


class _Lines:
    def __init__(self, path: Path) -> None:
        self._stream = path.open("w", encoding="utf-8")

    def write(self, table: Any) -> None:
        for row in table.to_pylist():
            self._stream.write(json.dumps({**row, "trace_id": row["trace_id"].hex()}) + "\n")

    def close(self) -> None:
        with self._stream as stream:
            stream.flush()
            os.fsync(stream.fileno())
