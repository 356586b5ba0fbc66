"""What a batch may claim: bounds that keep times and sums within 64 bits and labels within reason, whoever sent it."""

from __future__ import annotations

import numpy as np

from spanlite.contract.batch import Batch
from spanlite.contract.columns import GAUGE, Int64, SpanColumns, UInt32
from spanlite.contract.errors import BatchError
from spanlite.contract.point_codec import DEFAULT_POINT_LIMITS
from spanlite.native import library
from spanlite.native.columns import Claims, claims

MOST_START_NS = 1 << 62
"""Of a start before or after 1970: 146 years, so that the edges of its window fit an int64."""
MOST_TIME_NS = 1 << 48
"""Weighted GPU time of one batch: three days."""
MOST_COUNT = 1 << 32
"""Executions: 65,536 spans that stand for 65,536 each."""
MOST_BYTES = 1 << 56
MOST_WARPS = 1 << 10
"""Of one SM; the largest GPU has 64."""


def check_batch(batch: Batch) -> None:
    """Accepts what an agent can have measured.

    Raises:
        BatchError: reason text_bytes, time or total.
    """
    most = DEFAULT_POINT_LIMITS.text_bytes
    texts = (*batch.columns.strings, *batch.resource.values(), *(gpu.uuid for gpu in batch.gpus))
    # A text of n characters has at most 4n bytes, so only long ones need to be counted.
    longest = max(map(len, texts), default=0)
    if longest * 4 > most:
        longest = max(len(text.encode()) for text in texts)
        if longest > most:
            raise BatchError("text_bytes", f"a text has {longest} bytes, the limit is {most}")
    columns = batch.columns
    found = _claims(columns)
    if found.first_ns < -MOST_START_NS or found.last_ns > MOST_START_NS:
        starts = f"starts from {found.first_ns} to {found.last_ns} ns"
        raise BatchError("time", f"{starts}, the limit is {MOST_START_NS} either way")
    totals = (
        ("nanoseconds", found.time_ns, MOST_TIME_NS),
        ("executions", found.executions, MOST_COUNT),
        ("bytes", found.moved, MOST_BYTES),
        ("active warps", float(columns.configs["active_warps"].max(initial=0)), MOST_WARPS),
    )
    for what, total, limit in totals:
        if not total <= limit:
            raise BatchError("total", f"{total:.3g} {what} in one batch, the limit is {limit}")


def _claims(columns: SpanColumns) -> Claims:
    if not len(columns):
        return Claims(0.0, 0.0, 0.0, 0, 0)
    fast = library()
    if fast is not None:
        held = (columns.start_ns, columns.duration_ns, columns.bytes, columns.weight)
        return claims(fast, *held, kind=columns.kind, gauge=GAUGE)
    weight = None if (columns.weight == 1).all() else columns.weight
    return Claims(
        _total(columns.duration_ns, weight),
        _total(columns.weight, None),
        _total(np.where(columns.is_gauge, 0, columns.bytes), weight),
        int(columns.start_ns.min()),
        int(columns.start_ns.max()),
    )


def _total(values: Int64 | UInt32, weight: UInt32 | None) -> float:
    """Sum as float64, which cannot overflow; not by np.dot, whose threads would spin on the cores of other subtasks."""
    return float(np.add.reduce(values if weight is None else values * weight.astype(np.float64), dtype=np.float64))
