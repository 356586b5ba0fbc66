"""Archives made from recordings of an H200, and what is in them, row by row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.batch import Batch
from spanlite.contract.codec import DEFAULT_LIMITS, decode_batch
from spanlite.contract.delimited import read_delimited
from spanlite.contract.rows import span_rows
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.replay.prepare import Replay, Settings

RUN = "spanlite.replay.run"


def write_archive(root: Path, batches: Iterable[Batch], **how: Any) -> Path:
    """An archive of the batches; `how` are an ArchiveWriter's."""
    writer = ArchiveWriter(root, **how)
    for batch in batches:
        writer.add(batch)
    writer.close()
    return root


def cut(batch: Batch, rows: int) -> list[Batch]:
    """The batch as an agent with smaller ones would have sent it, a millisecond apart."""
    begins = range(0, len(batch.columns), rows)
    return [
        replace(
            batch,
            sequence=batch.sequence * 1000 + number,
            first_row=batch.first_row + begin,
            emit_ns=batch.emit_ns + 1_000_000 * number,
            columns=batch.columns.take(slice(begin, begin + rows)),
        )
        for number, begin in enumerate(begins)
    ]


def replayed(root: Path, settings: Settings | None = None, **bounds: int) -> list[Batch]:
    """What a replay emits, without its stamp."""
    return [unstamped(decode_batch(ready.payload)) for ready in prepared(root, settings, **bounds)]


def prepared(root: Path, settings: Settings | None = None, **bounds: int) -> list[Any]:
    """What a replay hands on."""
    replay = Replay(ArchiveFiles(str(root)), settings or Settings(), now_ns=0)
    return list(replay.ready(reader=replay.reader(**bounds)))


def unstamped(batch: Batch) -> Batch:
    """The batch without the run among its resource attributes."""
    return replace(batch, resource={name: value for name, value in batch.resource.items() if name != RUN})


def read_file(path: Path) -> list[Batch]:
    """The batches of a file, without their stamps."""
    with path.open("rb") as stream:
        return [
            unstamped(decode_batch(value)) for value in read_delimited(stream, most_bytes=DEFAULT_LIMITS.message_bytes)
        ]


def lines(batches: Iterable[Batch]) -> Counter[str]:
    """Every span with all that it says, ids included, however they are cut into batches."""
    return Counter(json.dumps(span, sort_keys=True) for batch in batches for span in span_rows(batch))


def spans(batches: Iterable[Batch]) -> list[dict[str, Any]]:
    """Every span as JSON values."""
    return [span for batch in batches for span in span_rows(batch)]


def edges(batches: Sequence[Batch]) -> Counter[tuple[int, int, bytes]]:
    """Span, parent and trace of each row, as on the wire."""
    found: Counter[tuple[int, int, bytes]] = Counter()
    for batch in batches:
        columns = batch.columns
        traces = [*(entry.tobytes() for entry in columns.traces["id"]), b""]
        rows = zip(batch.span_ids.tolist(), batch.parent_span_ids.tolist(), columns.trace.tolist(), strict=True)
        found.update((span, parent, traces[trace]) for span, parent, trace in rows)
    return found


def kernels(batches: Iterable[Batch]) -> int:
    """How many spans they hold."""
    return int(np.sum([len(batch.columns) for batch in batches]))
