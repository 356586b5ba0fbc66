"""One batch to partial aggregates: the inner loop of every runner, without a Python step per span."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.batch import Batch
from spanlite.contract.columns import GAUGE, RANGE, Int64, SpanColumns
from spanlite.contract.histogram import cells
from spanlite.native import Library, library
from spanlite.native.folding import Columns, Sizes, fold
from spanlite.pipeline.partial import Partial, empty_partial
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.sums import Sums, kinds_of, sum_batch


def fold_batch(batch: Batch, width_ns: int, registry: SeriesRegistry) -> Partial:
    """Aggregates the GPU work and observations of a batch by event-time window and series.

    A span lies in window floor(start / width). Ranges are left out. GPU work of zero length is not expected (the agent
    counts and drops it); it, counters and gauges fall into the lowest bucket.

    Args:
        batch: decoded columns.
        width_ns: window width.
        registry: numbers the series; partials of one registry can be merged.
    """
    columns = batch.columns
    if columns.is_range.all():
        return empty_partial()
    sums = _sum_batch(batch, width_ns)
    return Partial(
        window=sums.window,
        series=np.array(registry.resolve(batch, sums.kind, sums.config, sums.stage, sums.gpu), dtype=np.int32),
        count=sums.count,
        spans=sums.spans,
        sum_ns=sums.sum_ns,
        min_ns=sums.min_ns,
        max_ns=sums.max_ns,
        warp_ns=sums.sum_ns * columns.configs["active_warps"].astype(np.int64)[sums.config],
        bytes=sums.bytes,
        exemplar_trace=_trace_ids(columns, sums),
        exemplar_span=sums.span_id,
        exemplar_start_ns=columns.start_ns[sums.row],
        bucket_row=sums.bucket_row,
        bucket_index=sums.bucket_index,
        bucket_count=sums.bucket_count,
    )


def _sum_batch(batch: Batch, width_ns: int) -> Sums:
    native = library()
    return (native and sum_natively(native, batch, width_ns)) or sum_batch(batch, width_ns)


def sum_natively(native: Library, batch: Batch, width_ns: int) -> Sums | None:
    """What `sum_batch` gives; None where the tables that it would take are too large."""
    columns = batch.columns
    found = fold(
        native,
        Columns(
            *(columns.start_ns, columns.duration_ns, columns.kind, columns.config, columns.stage, columns.place),
            *(columns.bytes, columns.weight, columns.places["gpu"].astype(np.int32)),
        ),
        Sizes(kinds_of(columns), RANGE, GAUGE, len(columns.configs), len(columns.strings), len(batch.gpus) + 1),
        cells(),
        width_ns=width_ns,
        ids=(batch.session, batch.first_row),
    )
    if found is None:
        return None
    summed: dict[str, Any] = {name: np.ascontiguousarray(found.sums[name]) for name in found.sums.dtype.names or ()}
    return Sums(
        window=found.window,
        kind=found.kind.astype(np.int32),
        config=found.config.astype(np.int32),
        stage=found.stage.astype(np.int32),
        gpu=found.gpu.astype(np.int32),
        **summed,
        bucket_row=found.bucket_row,
        bucket_index=found.bucket_index,
        bucket_count=found.bucket_count,
    )


def _trace_ids(columns: SpanColumns, sums: Sums) -> NDArray[np.void]:
    ids = np.concatenate([columns.traces["id"], np.zeros(1, dtype="V16")])
    trace: Int64 = np.where(sums.kind == GAUGE, -1, columns.trace[sums.row])  # a value has no trace
    return ids[trace]  # -1, no trace, takes the zeros at the end
