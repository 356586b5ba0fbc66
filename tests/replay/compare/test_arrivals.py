"""Distances between arrivals: by definition, and of runs that were paced."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Int64
from spanlite.replay.compare.arrivals import Messages, bucket_ns, correlation, ks, out_of_order, rates, w1
from spanlite.replay.compare.comparing import Replayed, compare
from spanlite.replay.compare.figures import GAPS, Report
from spanlite.replay.compare.sides import Came
from spanlite.replay.compare.told import Told
from tests.replay.compare import brute
from tests.replay.compare.made import emitted, told

SAMPLES = st.lists(st.integers(0, 30), min_size=1, max_size=12)


def _sorted(values: list[int]) -> Int64:
    return np.sort(np.array(values, dtype=np.int64))


@given(left=SAMPLES, right=SAMPLES)
def test_distances_are_those_of_their_definitions(left: list[int], right: list[int]) -> None:
    """KS is the largest difference of two shares, W1 the mean distance of two samples of one size."""
    assert ks(_sorted(left), _sorted(right)) == pytest.approx(brute.ks(left, right), abs=1e-12)
    assert w1(_sorted(left), _sorted(right)) == pytest.approx(brute.w1(left, right), abs=1e-9)


@pytest.mark.skipif(importlib.util.find_spec("scipy") is None, reason="scipy is not installed")
@given(left=SAMPLES, right=SAMPLES)
def test_distances_are_those_of_scipy(left: list[int], right: list[int]) -> None:
    """An implementation that many use says the same."""
    import importlib

    stats = importlib.import_module("scipy.stats")
    assert ks(_sorted(left), _sorted(right)) == pytest.approx(stats.ks_2samp(left, right).statistic, abs=1e-12)
    assert w1(_sorted(left), _sorted(right)) == pytest.approx(stats.wasserstein_distance(left, right), abs=1e-9)


@given(pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_a_correlation_is_that_of_its_definition(pairs: list[tuple[int, int]]) -> None:
    """Pearson's r; none where one side is constant or there are not three values."""
    left, right = ([float(pair[at]) for pair in pairs] for at in (0, 1))
    found = correlation(np.array(left), np.array(right))
    if len(pairs) < 3 or len(set(left)) == 1 or len(set(right)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(brute.pearson(left, right), abs=1e-9)


def test_rates_count_the_spans_of_each_bucket() -> None:
    """Spans a second, since the first message; buckets are a second, less for short runs, more for very long ones."""
    messages = Messages(
        *(np.array(values, dtype=np.int64) for values in ([0, 1, 2], [50, 1_000_000_049, 50], [2, 3, 4]))
    )
    assert rates(messages, 10**9, 2).tolist() == [9, 0]
    assert rates(messages, 10**8, 10).tolist() == [60, *[0] * 8, 30]
    assert [bucket_ns(length) for length in (10**10, 10**10 - 1, 0)] == [10**9, 10**8, 10**6]
    assert bucket_ns(2**62) * 100_000 >= 2**62 - 100_000


@given(
    places=st.lists(st.integers(-1, 5), max_size=12), partitions=st.lists(st.integers(0, 1), min_size=12, max_size=12)
)
def test_order_is_that_within_partitions(places: list[int], partitions: list[int]) -> None:
    """A message is out of order behind one of its partition that was to come later."""
    found = 0
    for at, place in enumerate(places):
        before = [places[i] for i in range(at) if partitions[i] == partitions[at]]
        found += place >= 0 and max(before, default=-1) > place
    arrays = (np.array(values, dtype=np.int64) for values in (places, partitions[: len(places)]))
    assert out_of_order(*arrays) == found


def _stored(original: list[Batch], run: Told, times_ms: list[int]) -> Report:
    came = [Came(batch, 10, 0, ms) for batch, ms in zip(emitted(original, run), times_ms, strict=True)]
    producers = {batch.producer for batch in original}
    return compare(run, lambda: original, Replayed("kafka:t", "topic", came), where="traces", producers=producers)


@pytest.fixture
def spaced(small: list[Batch]) -> list[Batch]:
    """Batches that were sent some milliseconds apart."""
    from dataclasses import replace

    first = small[0].emit_ns
    return [replace(batch, emit_ns=first + 4_000_000 * at * at) for at, batch in enumerate(small[:12])]


def test_what_a_broker_stored_on_time_has_no_distance(spaced: list[Batch]) -> None:
    """Stored at the recorded gaps divided by the speed, distributions are equal and nothing is late."""
    run = told(pacing={"speed": "4", "by": "arrival"})
    report = _stored(spaced, run, [1_000_000 + at * at for at in range(12)])
    values = report.figures.values
    assert (values["ks"], values["w1_ns"], values["stored_late_max_ns"]) == (0, 0, 0)
    assert values["gap_p50_original_ns"] == values["gap_p50_replay_ns"] == 11_000_000
    assert values["rate_correlation"] == pytest.approx(1)
    assert report.arrivals == {"by": "broker", "resolution_ns": 1_000_000}


def test_what_a_broker_stored_late_is_told(spaced: list[Batch]) -> None:
    """One message of twelve 30 ms late: two gaps of eleven differ, and the maximum is that lateness."""
    run = told(pacing={"speed": "4", "by": "arrival"})
    times = [1_000_000 + at * at for at in range(12)]
    times[11] += 30
    values = _stored(spaced, run, times).figures.values
    assert values["stored_late_max_ns"] == 30_000_000
    assert values["ks"] == pytest.approx(1 / 11)
    assert values["w1_ns"] == pytest.approx(30_000_000 / 11)


def test_turns_are_late_each_for_itself(spaced: list[Batch]) -> None:
    """The second turn begins a mean gap after the first, 132 ms at this speed; its third message is 30 ms late."""
    run = told(remapped=True, loops=2, period_ns=10**9, pacing={"speed": "4", "by": "arrival"})
    times = [1_000_000 + 132 * loop + at * at for loop in range(2) for at in range(12)]
    assert _stored(spaced, run, times).figures.values["stored_late_max_ns"] == 0
    times[14] += 30
    assert _stored(spaced, run, times).figures.values["stored_late_max_ns"] == 30_000_000


def test_a_limit_is_part_of_what_was_due(spaced: list[Batch]) -> None:
    """At speed max and a hundred batches a second, messages are due each 10 ms."""
    run = told(pacing={"speed": "max", "by": "arrival", "qps": "100", "qps_of": "batches"})
    values = _stored(spaced, run, [5 + 10 * at for at in range(12)]).figures.values
    assert (values["ks"], values["gap_p99_original_ns"]) == (0, 10_000_000)


def test_without_a_pace_gaps_say_nothing(spaced: list[Batch]) -> None:
    """As fast as it goes, times at the broker are compared with nothing, and the report says why."""
    report = _stored(spaced, told(), list(range(12)))
    assert [name for name in GAPS if report.figures.value(name) is not None] == []
    assert {report.figures.unavailable[name] for name in GAPS} == {
        "the run had no pace, so its messages had no times to come at"
    }


def test_what_batches_carry_is_told_as_that(spaced: list[Batch]) -> None:
    """Where nobody says when messages came, the agents' times are compared, and a gate names them."""
    from spanlite.replay.compare.gates import parse_gate, said

    run = told(remapped=True, loops=2, period_ns=10**9, offset_ns=5)
    came = [Came(batch, 10) for batch in emitted(spaced, run)]
    producers = {batch.producer for batch in spaced}
    sides = Replayed("out", "file", came)
    report = compare(run, lambda: spaced, sides, where="traces", producers=producers)
    assert report.figures.values["ks"] == 0
    assert report.arrivals["by"] == "batches"
    assert any("carry" in note for note in report.notes)
    assert said(parse_gate("ks<0.01").judged(report)) == "ok      ks<0.01: 0 (by the times that batches carry)"
