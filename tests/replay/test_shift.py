"""Moving in time: exact, all times alike, durations never, and told when it does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanlite.contract.batch import Batch, ClockAnchor
from spanlite.contract.errors import UsageError
from spanlite.replay.prepare import Settings
from spanlite.replay.shift import check_offset, offset_ns, parse_time_ns, shifted
from tests.replay.archives import edges, replayed

HOUR = 3_600_000_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-29T13:05:00.123456789Z", 1795957500123456789),
        ("2026-11-29T14:05:00.1+01:00", 1795957500100000000),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1795957500123456789", 1795957500123456789),
    ],
)
def test_times_are_read_to_the_nanosecond(text: str, ns: int) -> None:
    """RFC 3339 with any number of digits and any zone; expected values are date(1)'s."""
    assert parse_time_ns(text) == ns


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-29", "2026-11-29T13:05:00", "2026-13-01T00:00:00Z", "1e9"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """No zone, no such month, no number: refused rather than guessed."""
    with pytest.raises(UsageError, match="is no time"):
        parse_time_ns(text)


def test_offsets() -> None:
    """Each way to say a shift gives the nanoseconds that it means."""
    at = {"first_ns": 1000, "now_ns": 5000}
    assert offset_ns("keep", **at) == 0
    assert offset_ns("now", **at) == 4000
    assert offset_ns("offset=+2h", **at) == 2 * HOUR
    assert offset_ns("offset=-30m", **at) == -HOUR // 2
    assert offset_ns("at=1970-01-01T00:00:01Z", **at) == 10**9 - 1000
    for text in ("later", "offset=2h", "offset=+", "at=", "now=1"):
        with pytest.raises(UsageError):
            offset_ns(text, **at)


@pytest.mark.parametrize("offset", [1, -1, 2 * HOUR, -(10**17) - 7, 7 * 10**18])
def test_every_time_moves_and_nothing_else(archive: Path, recorded: list[Batch], offset: int) -> None:
    """Starts, traces' starts, the agent's times move by exactly the offset; durations and ids stay."""
    for batch in recorded[:4]:
        moved = shifted(batch, offset)
        assert np.array_equal(moved.columns.start_ns - batch.columns.start_ns, np.full(len(batch.columns), offset))
        assert np.array_equal(moved.columns.duration_ns, batch.columns.duration_ns)
        known = batch.columns.traces["start_ns"] != 0
        assert (moved.columns.traces["start_ns"] - batch.columns.traces["start_ns"] == offset * known).all()
        assert moved.emit_ns - batch.emit_ns == offset
        assert moved.clock.cupti_ns == batch.clock.cupti_ns
        assert moved.clock.unix_ns - batch.clock.unix_ns == (offset if batch.clock.unix_ns else 0)
        assert edges([moved]) == edges([batch])


def test_what_is_not_known_stays_unknown(recorded: list[Batch]) -> None:
    """A trace start of 0 and a clock that was not read do not become times."""
    batch = recorded[0]
    traces = batch.columns.traces.copy()
    traces["start_ns"] = 0
    moved = shifted(replace(batch, columns=replace(batch.columns, traces=traces)), HOUR)
    assert (moved.columns.traces["start_ns"] == 0).all()


def test_a_shift_too_far_is_refused(archive: Path, recorded: list[Batch]) -> None:
    """Times that would wrap around 64 bits are an error before anything is emitted."""
    check_offset(2**63 - 11, first_ns=0, last_ns=10)
    with pytest.raises(UsageError, match="smaller shift"):
        check_offset(2**63 - 10, first_ns=0, last_ns=10)
    with pytest.raises(UsageError, match="smaller shift"):
        replayed(archive, Settings(shift="offset=+2400000h"))
    with pytest.raises(UsageError, match="smaller shift"):
        shifted(recorded[0], 2**63 - 1)


def test_a_clock_that_cannot_be_moved_so_far_is_refused(recorded: list[Batch]) -> None:
    """A reading of the host's clock long before the spans would end the run with an error of the encoder."""
    long_ago = replace(recorded[0], clock=ClockAnchor(1, -(2**62), 1))
    with pytest.raises(UsageError, match="years 1677 to 2262"):
        shifted(long_ago, -(2**62) - 2)


def test_a_replay_begins_when_it_is_told_to(archive: Path, recorded: list[Batch]) -> None:
    """`at` puts the first start on the nanosecond, and all others keep their distance from it."""
    got = replayed(archive, Settings(shift="at=2027-01-01T00:00:00.000000001Z"))
    starts = np.sort(np.concatenate([batch.columns.start_ns for batch in got]))
    before = np.sort(np.concatenate([batch.columns.start_ns for batch in recorded]))
    assert starts[0] == 1798761600 * 10**9 + 1
    assert np.array_equal(starts - starts[0], before - before[0])
