"""Top-K: which kernels keep a series, and that `other` loses nothing of the rest."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.columns import OBSERVATIONS, Kind
from spanlite.contract.points import OTHER, Launch, Point
from spanlite.pipeline.fold import fold_batch
from spanlite.pipeline.partial import empty_partial, merge
from spanlite.pipeline.points import points
from spanlite.pipeline.series import SeriesRegistry
from spanlite.pipeline.topk import TopK
from tests.pipeline.conftest import Span, brute_force, make_batch, plain, span_lists

WIDTH_NS = 100
Split = tuple[int, str, int, str]


class Top:
    """A TopK with its registry, fed with spans of one closing after the other."""

    def __init__(self, k: int) -> None:
        self.registry = SeriesRegistry()
        self.top = TopK(k, self.registry)

    def close(self, *spans: Span) -> list[Point]:
        numbered = [span._replace(row=row) for row, span in enumerate(spans)]
        return self.close_batches([make_batch(numbered)])

    def close_batches(self, batches: list[Batch]) -> list[Point]:
        whole = merge([fold_batch(batch, WIDTH_NS, self.registry) for batch in batches])
        return points(self.top.apply(whole), WIDTH_NS, self.registry)


def totals(made: list[Point]) -> dict[Split, Counter[str | int]]:
    """Everything that adds up, by window, GPU, kind and stage; buckets under their index."""
    sums: dict[Split, Counter[str | int]] = {}
    for point in made:
        series = point.series
        counter = sums.setdefault((point.window_start_ns, series.gpu_uuid, series.kind, series.stage), Counter())
        for name in ("count", "spans", "sum_ns", "warp_ns", "bytes"):
            counter[name] += getattr(point, name)
        for index, count in zip(point.bucket_index.tolist(), point.bucket_count.tolist(), strict=True):
            counter[index] += count
    return sums


def names(made: list[Point]) -> list[tuple[str, int]]:
    """Kernel and GPU time of each point, most time first."""
    return sorted(((point.series.kernel, point.sum_ns) for point in made), key=lambda pair: (-pair[1], pair[0]))


@settings(max_examples=100, deadline=None)
@given(st.lists(span_lists(most=25), min_size=1, max_size=3), st.integers(0, 3))
def test_totals_are_conserved(closings: list[list[Span]], k: int) -> None:
    """For any spans and any K, sums and buckets of each window, GPU, kind and stage are the same before and after."""
    top = Top(k)
    for spans in closings:
        whole = merge([fold_batch(make_batch(spans), WIDTH_NS, top.registry)])
        before = totals(points(whole, WIDTH_NS, top.registry))
        after = points(top.top.apply(whole), WIDTH_NS, top.registry)
        assert totals(after) == before
        for gpu in {point.series.gpu_uuid for point in after}:
            work = [point.series for point in after if point.series.kind not in OBSERVATIONS]
            assert len({series.kernel for series in work if series.gpu_uuid == gpu} - {OTHER}) <= k


@settings(max_examples=50, deadline=None)
@given(span_lists(most=25))
def test_other_is_what_the_brute_force_makes_of_the_renamed_spans(spans: list[Span]) -> None:
    """With K = 0 extremes, exemplars and buckets too are those of the spans under the name `other`."""
    spans = [span for span in spans if span.kind not in OBSERVATIONS]
    spans = [span._replace(row=row) for row, span in enumerate(spans)]
    expected = brute_force(
        (
            span._replace(kernel=OTHER, launch=Launch(max_warps=span.launch.max_warps, copy_kind=span.launch.copy_kind))
            for span in spans
        ),
        WIDTH_NS,
    )
    made = plain(Top(0).close_batches([make_batch(spans)]))
    assert {(window, series._replace(name="")) for window, series in expected} == set(made)
    for (window, series), what in expected.items():
        got = made[window, series._replace(name="")]
        # The launches of `other` differ, so its warp time is no multiple of its time: conservation is tested above.
        assert got == type(got)(**{**vars(what), "warp_ns": got.warp_ns})


def test_custom_metrics_are_left_alone() -> None:
    """Observations take no kernel's place, however long, are never summed up, and a restart admits none of them."""
    kinds = [Kind.TIMING, Kind.COUNTER, Kind.GAUGE]
    observed = [Span(0, 900, kernel="x", kind=kind) for kind in kinds]
    top = Top(1)
    top.top.restore([span.series for span in observed])
    made = top.close(*observed, Span(0, 10, kernel="a"), Span(0, 9, kernel="x"))
    kept = {(point.series.kind, point.series.kernel) for point in made}
    assert kept == {*((kind, "x") for kind in kinds), (Kind.KERNEL, "a"), (Kind.KERNEL, OTHER)}
    assert top.top.folded == 1


def test_most_gpu_time_is_kept() -> None:
    """Time decides, not the number of launches; all launch configurations of a kernel count together."""
    made = Top(2).close(
        *(Span(0, 10, kernel="often") for _ in range(50)),
        Span(0, 5000, kernel="long"),
        Span(0, 400, kernel="two", launch=Launch(grid=(1, 1, 1))),
        Span(0, 400, kernel="two", launch=Launch(grid=(2, 1, 1))),
        Span(0, 450, kernel="short"),
    )
    assert names(made) == [("long", 5000), (OTHER, 950), ("two", 400), ("two", 400)]


def test_equal_times_are_decided_by_name() -> None:
    """A tie falls the same way in every run."""
    assert names(Top(1).close(Span(0, 10, kernel="b"), Span(0, 10, kernel="a"))) == [("a", 10), (OTHER, 10)]


def test_a_kernel_keeps_the_series_it_has() -> None:
    """One that was admitted stays when others overtake it: its cumulative series goes on."""
    top = Top(1)
    top.close(Span(0, 10, kernel="first"))
    assert names(top.close(Span(100, 900, kernel="later"), Span(100, 1, kernel="first"))) == [
        (OTHER, 900),
        ("first", 1),
    ]
    assert names(top.close(Span(200, 900, kernel="later"))) == [(OTHER, 900)]


def test_room_that_is_left_goes_to_later_kernels() -> None:
    """While fewer than K have a series a new kernel gets one."""
    top = Top(2)
    assert names(top.close(Span(0, 10, kernel="first"))) == [("first", 10)]
    assert names(top.close(Span(100, 9, kernel="b"), Span(100, 8, kernel="c"))) == [("b", 9), (OTHER, 8)]


def test_each_gpu_has_its_own_k() -> None:
    """A kernel that is in the top of one GPU may be folded on another, into that GPU's `other`."""
    made = Top(1).close(
        Span(0, 10, kernel="a", gpu="GPU-1"),
        Span(0, 5, kernel="b", gpu="GPU-1"),
        Span(0, 7, kernel="a", gpu="GPU-2"),
        Span(0, 8, kernel="b", gpu="GPU-2"),
    )
    assert {(p.series.gpu_uuid, p.series.kernel, p.sum_ns) for p in made} == {
        ("GPU-1", "a", 10),
        ("GPU-1", OTHER, 5),
        ("GPU-2", "b", 8),
        ("GPU-2", OTHER, 7),
    }


def test_folded_counts_each_kernel_once() -> None:
    """Windows later the same kernel is not counted again; on another GPU it is another."""
    top = Top(1)
    top.close(Span(0, 10, kernel="a"), Span(0, 5, kernel="b"), Span(0, 4, kernel="c"))
    assert top.top.folded == 2
    top.close(Span(100, 50, kernel="b"))
    assert top.top.folded == 2
    top.close(Span(200, 9, kernel="a", gpu="GPU-2"), Span(200, 5, kernel="b", gpu="GPU-2"))
    assert top.top.folded == 3


def test_other_has_a_time_weighted_occupancy() -> None:
    """Kernels of one warp limit share an `other`; those whose occupancy is not known get their own."""
    made = Top(0).close(
        Span(0, 300, kernel="a", launch=Launch(grid=(1, 1, 1), active_warps=64, max_warps=64)),
        Span(0, 100, kernel="b", launch=Launch(grid=(2, 1, 1), active_warps=16, max_warps=64)),
        Span(0, 50, kernel="c"),
    )
    known, unknown = sorted(made, key=lambda point: -point.sum_ns)
    assert known.occupancy == (300 * 64 + 100 * 16) / (400 * 64)
    assert (unknown.sum_ns, unknown.series.launch) == (50, Launch())


def test_copies_of_one_direction_stay_together() -> None:
    """`other` keeps kind and copy direction apart, so that bytes stay meaningful."""
    copies = [
        Span(0, 10, kernel="memcpy", kind=Kind.MEMCPY, launch=Launch(copy_kind=kind), moved=kind) for kind in (1, 2)
    ]
    made = Top(0).close(*copies, copies[0], Span(0, 10))
    assert {(p.series.kind, p.series.launch.copy_kind, p.bytes) for p in made} == {
        (Kind.MEMCPY, 1, 2),
        (Kind.MEMCPY, 2, 2),
        (Kind.KERNEL, 0, 0),
    }


def test_with_room_for_all_nothing_changes(recorded: list[Batch]) -> None:
    """A K that no GPU reaches leaves the very partial, and folds nothing."""
    registry = SeriesRegistry()
    top = TopK(500, registry)
    whole = merge([fold_batch(batch, 10**9, registry) for batch in recorded])
    assert top.apply(whole) is whole
    assert top.folded == 0
    assert len(top.apply(empty_partial())) == 0


def test_the_longest_running_kernels_of_a_recorded_run(recorded: list[Batch]) -> None:
    """The five kernels with most time in the recording keep their series; the other's time is all that is left."""
    time_ns: Counter[str] = Counter()
    for batch in recorded:
        columns = batch.columns
        for config, duration in zip(columns.config.tolist(), columns.duration_ns.tolist(), strict=True):
            time_ns[columns.strings[columns.configs["kernel"][config]]] += duration
    top = Top(5)
    kept: Counter[str] = Counter()
    for point in top.close_batches(recorded):
        kept[point.series.kernel] += point.sum_ns
    best = dict(time_ns.most_common(5))
    assert kept == {**best, OTHER: time_ns.total() - sum(best.values())}
    assert top.top.folded == len(time_ns) - 5


def test_a_restored_kernel_keeps_its_series() -> None:
    """After a restart those that have a series go on with it, `other` takes no place, and the rest goes to `other`."""
    top = Top(2)
    kept = [Span(0, kernel="a").series, Span(0, kernel="b").series, Span(0, kernel=OTHER).series]
    top.top.restore(kept[at] for at in (2, 0, 1))
    assert names(top.close(Span(0, 900, kernel="later"), Span(0, 1, kernel="a"), Span(0, 2, kernel="b"))) == [
        (OTHER, 900),
        ("b", 2),
        ("a", 1),
    ]
