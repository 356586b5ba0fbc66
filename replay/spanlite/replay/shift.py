"""Moving a replay in time: one whole number of nanoseconds for all of it, durations as they were."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np

from spanlite.contract.batch import Batch, ClockAnchor
from spanlite.contract.columns import Int64, Table
from spanlite.contract.errors import UsageError
from spanlite.runtime.durations import parse_duration_ns

_LEAST, _MOST = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FORM = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")


def parse_time_ns(text: str) -> int:
    """Unix nanoseconds of an RFC 3339 time such as 2026-11-29T13:05:00.123456789Z, or of a whole number of them.

    Raises:
        UsageError: it is neither.
    """
    if re.fullmatch(r"-?\d{1,19}", text):
        return int(text)
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no time; write it as 2026-11-29T13:05:00Z, with a time zone")
    date, clock, fraction, zone = match.groups()
    try:
        whole = datetime.fromisoformat(f"{date}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    except ValueError as error:
        raise UsageError(f"{text!r} is no time: {error}") from error
    return (whole - _EPOCH) // timedelta(seconds=1) * 10**9 + int((fraction or "").ljust(9, "0"))


def offset_ns(shift: str, *, first_ns: int, now_ns: int) -> int:
    """Nanoseconds to add to every time.

    Args:
        shift: `keep`; `now`: the first span starts now; `at=TIME`: it starts then; `offset=+2h`, `offset=-30m`.
        first_ns: first start of the spans that are replayed.
        now_ns: now, Unix nanoseconds.

    Raises:
        UsageError: another word, or no time or duration behind it.
    """
    word, _, value = shift.partition("=")
    if shift == "keep":
        return 0
    if shift == "now":
        return now_ns - first_ns
    if word == "at":
        return parse_time_ns(value) - first_ns
    if word == "offset" and value[:1] in ("+", "-"):
        length = parse_duration_ns(value[1:])
        return -length if value[0] == "-" else length
    raise UsageError(f"--shift {shift!r}: write keep, now, offset=+2h, offset=-30m or at=2026-11-29T13:05:00Z")


def check_offset(offset: int, *, first_ns: int, last_ns: int) -> None:
    """Raises UsageError where times from the first to the last one would not fit 64 bits when moved."""
    for moved in (first_ns + offset, last_ns + offset):
        if not _LEAST <= moved <= _MOST:
            raise UsageError(
                f"--shift: {moved} ns lies outside what a span can hold (years 1677 to 2262); take a smaller shift"
            )


def shifted(batch: Batch, offset: int) -> Batch:
    """A batch with every time moved: starts, those of traces, the agent's handing on, the reading of the host's clock.

    A trace's start of 0 means that it is not known, and a clock of 0 that there was no reading: those stay.

    Raises:
        UsageError: a time does not fit 64 bits.
    """
    if not offset:
        return batch
    columns = batch.columns
    emit_ns, clock = moved_header(batch.emit_ns, batch.clock, offset)
    return replace(
        batch,
        emit_ns=emit_ns,
        clock=clock,
        columns=replace(
            columns, start_ns=_moved(columns.start_ns, offset), traces=moved_traces(columns.traces, offset)
        ),
    )


def moved_header(emit_ns: int, clock: ClockAnchor, offset: int) -> tuple[int, ClockAnchor]:
    """The agent's handing on and the reading of the host's clock, moved; an offset of 0 is never too far.

    Raises:
        UsageError: a time does not fit 64 bits.
    """
    if not offset:
        return emit_ns, clock
    read_ns = clock.unix_ns or emit_ns
    check_offset(offset, first_ns=min(emit_ns, read_ns), last_ns=max(emit_ns, read_ns))
    moved = ClockAnchor(clock.cupti_ns, clock.unix_ns + offset, clock.uncertainty_ns) if clock.unix_ns else clock
    return emit_ns + offset, moved


def fits(first_ns: int, last_ns: int, offset: int) -> bool:
    """Whether times from the first to the last one fit 64 bits when moved."""
    return first_ns + offset >= _LEAST and last_ns + offset <= _MOST


def _moved(values: Int64, offset: int) -> Int64:
    if len(values):
        check_offset(offset, first_ns=int(values.min()), last_ns=int(values.max()))
    return values + np.int64(offset)


def moved_traces(traces: Table, offset: int) -> Table:
    """Traces whose starts, where known, are moved.

    Raises:
        UsageError: a time does not fit 64 bits.
    """
    moved = traces.copy()
    known = traces["start_ns"] != 0
    moved["start_ns"][known] = _moved(traces["start_ns"][known], offset)
    return moved
