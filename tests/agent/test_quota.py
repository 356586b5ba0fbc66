"""Token buckets, and who may connect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.admission import Admission
from spanlite.agent.quota import Bucket, Quotas
from spanlite.runtime.clock import ManualClock

_S = 10**9


def test_a_bucket_lets_its_rate_through_and_one_item_more() -> None:
    """Rate 100, burst 200: an item larger than the burst passes, and its debt is waited for."""
    clock = ManualClock()
    bucket = Bucket(100, clock)
    assert bucket.take(500)  # 200 - 500 = -300
    assert not bucket.take(1)
    clock.advance_ns(3 * _S)
    assert not bucket.take(1)  # at 0: not one token yet
    clock.advance_ns(_S // 100)
    assert bucket.take(1)
    assert bucket.charge(150) == 1.5
    clock.advance_ns(3600 * _S)
    assert bucket.full
    assert bucket.charge(200) == 0.0


def test_no_rate_is_no_bound() -> None:
    """0 lets everything through, at once."""
    bucket = Bucket(0, ManualClock())
    assert all(bucket.take(1 << 40) for _ in range(100))
    assert bucket.charge(1 << 40) == 0.0


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(0, 3 * _S), st.integers(1, 5000)), min_size=1, max_size=60))
def test_no_schedule_gets_more_than_the_rate(rate: int, asked: list[tuple[int, int]]) -> None:
    """Over any time t at most rate · t + burst passes, and the last item."""
    clock = ManualClock()
    bucket = Bucket(rate, clock)
    passed = last = 0
    for pause_ns, amount in asked:
        clock.advance_ns(pause_ns)
        if bucket.take(amount):
            passed, last = passed + amount, amount
    assert passed <= rate * clock.monotonic_ns() / _S + 2 * rate + last + 1e-6


def test_users_are_counted_for_themselves() -> None:
    """One user's connections end at the limit, another's do not, and leaving makes room."""
    admission = Admission(Quotas(uid_connections=2, uid_rate=0), ManualClock())
    assert [admission.admit(1000) for _ in range(3)] == ["", "", "uid_connections"]
    assert admission.admit(1001) == ""
    admission.leave(1000)
    assert admission.admit(1000) == ""


def test_all_together_have_a_limit_too() -> None:
    """Users are many."""
    admission = Admission(Quotas(connections=3), ManualClock())
    assert [admission.admit(uid) for uid in range(4)] == ["", "", "", "connections"]
    admission.leave(0)
    assert admission.admit(4) == ""


def test_a_flood_of_connections_is_cut_off_and_forgotten() -> None:
    """Rate 5: a burst of 50, then one more each 0.2 s; another user is not disturbed."""
    clock = ManualClock()
    admission = Admission(Quotas(uid_rate=5), clock)

    def come(uid: int) -> str:
        reason = admission.admit(uid)
        if not reason:
            admission.leave(uid)
        return reason

    assert [come(1000) for _ in range(52)] == [""] * 50 + ["uid_rate"] * 2
    assert come(1001) == ""
    clock.advance_ns(_S // 5)
    assert [come(1000) for _ in range(2)] == ["", "uid_rate"]


def test_users_that_went_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that runs for a year does not keep every user's rate: those that have rested are forgotten."""
    monkeypatch.setattr("spanlite.agent.admission._MOST_UIDS", 10)
    clock = ManualClock()
    admission = Admission(Quotas(uid_rate=5), clock)
    for uid in range(1000):
        assert admission.admit(uid) == ""
        admission.leave(uid)
        clock.advance_ns(_S)
        assert len(admission._rates) <= 10
