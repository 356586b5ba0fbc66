"""Admission to a series of one's own."""

from __future__ import annotations

from spanlite.exporters.admission import Admission, HotKey


def key(what: str, *, pod: str = "", gpu: str = "GPU-1") -> HotKey:
    """A label set."""
    return HotKey(gpu, what, "", pod, "")


def test_a_label_set_keeps_its_series_and_a_folded_one_stays_folded() -> None:
    """Proves that decisions are for good, so that no counter falls."""
    admission = Admission(2)
    assert admission.place(key("a")) == key("a")
    assert admission.place(key("b")) == key("b")
    for _ in range(2):
        assert admission.place(key("c")) == key("other")
        assert admission.place(key("a")) == key("a")
    assert admission.capped == 1


def test_folding_keeps_the_gpu_and_drops_the_workload() -> None:
    """Proves that the number of series is bounded whatever pods come and go."""
    admission = Admission(0)
    placed = {admission.place(key("a", pod=f"p{n}", gpu=f"GPU-{n % 2}")) for n in range(100)}
    assert placed == {key("other", gpu="GPU-0"), key("other", gpu="GPU-1")}
    assert admission.capped == 100


def test_a_bounded_label_is_kept_when_folded() -> None:
    """Proves that copies keep their direction beyond the cap."""
    assert Admission(0, folded=None).place(key("h2d", pod="p")) == key("h2d")
