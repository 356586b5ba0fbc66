"""Two sets of alerts compared by series and time, against plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.pipeline.detect.alerts import Alerts
from spanlite.pipeline.detect.compare import Incidents, changes, incidents

Rows = list[tuple[int, int, int]]
"""Series, first and last window."""
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 20), st.integers(0, 4)), max_size=12).map(
    lambda made: [(series, first, first + more) for series, first, more in made]
)


def alerts(made: Rows) -> Alerts:
    """Alerts that are told in their first window."""
    columns = np.array(made, dtype=np.int64).reshape(len(made), 3).T
    series, first, last = columns
    value = np.zeros(len(made))
    return Alerts(series.astype(np.int32), first, last, first, value, first, value)


def plain(found: Incidents) -> list[tuple[int, int, int, int]]:
    """Incidents as rows."""
    columns = (found.series, found.begin_ns, found.end_ns, found.told_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def joined_by_hand(made: Rows, width_ns: int) -> list[tuple[int, int, int, int]]:
    """Windows that are off, series by series, and every run of them."""
    found = []
    for series in sorted({row[0] for row in made}):
        off = {w for s, first, last in made if s == series for w in range(first, last + 1)}
        begins = [w for w in sorted(off) if w - 1 not in off]
        for begin in begins:
            end = begin
            while end in off:
                end += 1
            told = min(first for s, first, _ in made if s == series and begin <= first < end)
            found.append((series, begin * width_ns, end * width_ns, (told + 1) * width_ns))
    return found


@settings(max_examples=40)
@given(st.lists(rows, max_size=3), st.sampled_from([1, 10, 10**9]))
def test_alerts_of_several_rules_become_incidents(sets: list[Rows], width_ns: int) -> None:
    """The same trouble would be counted once a rule, or two troubles as one."""
    found = incidents([alerts(made) for made in sets], width_ns)
    assert plain(found) == joined_by_hand([row for made in sets for row in made], width_ns)


@settings(max_examples=40)
@given(rows, rows, st.sampled_from([(1, 1), (10, 30), (30, 10)]))
def test_a_diff_finds_what_overlaps(one: Rows, other: Rows, widths: tuple[int, int]) -> None:
    """An incident that another rule has as well would be told as new, or its twin be one of another series."""
    a, b = incidents([alerts(one)], widths[0]), incidents([alerts(other)], widths[1])
    found = changes(a, b)

    def overlapping(row: tuple[int, ...], others: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
        return [each for each in others if each[0] == row[0] and each[1] < row[2] and row[1] < each[2]]

    rows_a, rows_b = plain(a), plain(b)
    assert plain(found.only_a) == [row for row in rows_a if not overlapping(row, rows_b)]
    assert plain(found.only_b) == [row for row in rows_b if not overlapping(row, rows_a)]
    both = [(row, overlapping(row, rows_b)[0]) for row in rows_a if overlapping(row, rows_b)]
    assert list(zip(plain(found.both_a), plain(found.both_b), strict=True)) == both
