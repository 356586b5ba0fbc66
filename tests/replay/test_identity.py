"""Mapped ids: one to one, in the same relations, others for each run, seed and turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.batch import Batch
from spanlite.contract.ids import mix64
from spanlite.replay.identity import Keys, Names, remapped
from spanlite.replay.prepare import Settings
from tests.replay.archives import edges, replayed

WORD = st.integers(0, 2**64 - 1)


def _shape(batches: list[Batch]) -> Counter[tuple[int, ...]]:
    """The relations alone: how many children and which size of trace each span has, whatever the ids."""
    rows = edges(batches)
    children = Counter(parent for _, parent, _ in rows)
    sizes = Counter(trace for *_, trace in rows)
    return Counter((children[span], bool(parent), sizes[trace]) for span, parent, trace in rows)


def test_topology_is_kept_and_ids_are_all_others(archive: Path, recorded: list[Batch]) -> None:
    """Every parent edge and trace survives the mapping, and no id does."""
    mapped = replayed(archive, Settings(ids="remap", seed=3))
    assert _shape(mapped) == _shape(recorded)
    before, after = edges(recorded), edges(mapped)
    assert not {span for span, *_ in before} & {span for span, *_ in after}
    assert not ({trace for *_, trace in before} - {b""}) & {trace for *_, trace in after}
    by_span = dict(zip((row[0] for row in _in_order(recorded)), (row[0] for row in _in_order(mapped)), strict=True))
    parents = {span: parent for span, parent, _ in after}
    assert all(parents[by_span[span]] == by_span[parent] for span, parent, _ in before if parent)
    assert sum(1 for _, parent, _ in before if parent) == sum(1 for _, parent, _ in after if parent) > 1000


def _in_order(batches: list[Batch]) -> list[tuple[int, int, int]]:
    """Span ids with what does not change, in an order that does not depend on ids or names."""
    rows = [
        (int(span), int(start), int(correlation))
        for batch in batches
        for span, start, correlation in zip(
            batch.span_ids.tolist(), batch.columns.start_ns.tolist(), batch.columns.correlation.tolist(), strict=True
        )
    ]
    starts = Counter((start, correlation) for _, start, correlation in rows)
    assert max(starts.values()) == 1, "two spans that nothing but ids tells apart"
    return sorted(rows, key=lambda row: row[1:])


@given(session=WORD, number=WORD, key=WORD)
def test_an_id_is_mapped_alike_whoever_knows_it(session: int, number: int, key: int) -> None:
    """The id of a span that is mapped by its session equals that mapped as an id alone, as a remote parent is."""
    from spanlite.contract.columns import TRACE
    from spanlite.replay.identity import remapped_traces

    traces = np.zeros(1, dtype=TRACE)
    wire = mix64(np.array([session ^ number], dtype=np.uint64))
    traces["remote_parent"] = wire
    mapped = remapped_traces(traces, Keys(key, bytes(16), bytes(16)))["remote_parent"]
    if wire[0]:
        assert mapped[0] == mix64(np.array([session ^ key ^ number], dtype=np.uint64))[0]
    else:
        assert mapped[0] == 0


def test_mapping_twice_gives_back_what_was(recorded: list[Batch]) -> None:
    """The map is its own inverse, so a reader that knows the keys finds the original."""
    keys = Keys.of("run", 1, 0)
    again = [remapped(remapped(batch, keys), keys) for batch in recorded[:3]]
    assert edges(again) == edges(recorded[:3])


def test_keys_differ_by_run_seed_and_turn() -> None:
    """No two of runs, seeds and turns share a key."""
    keys = [Keys.of(run, seed, loop) for run in ("a", "b") for seed in (0, 1) for loop in (0, 1)]
    assert len({key.session for key in keys}) == len({key.trace for key in keys}) == 8


def test_a_name_is_kept_or_counted(recorded: list[Batch]) -> None:
    """Batches that are as they were keep their names; others are numbered from 0 by a producer of the run."""
    batch = recorded[0]
    assert Names("r", 0, kept=True).named(batch, loop=0, part=0) is batch
    names = Names("r", 0, kept=False)
    named = [names.named(replace(batch, sequence=7 * at), loop=0, part=0) for at in range(3)]
    assert [one.sequence for one in named] == [0, 1, 2]
    assert {one.producer for one in named} != {batch.producer}
    on = Names("r", 0, kept=False, counts={named[0].producer: 3})
    assert on.named(batch, loop=0, part=0).sequence == 3
    assert on.named(batch, loop=1, part=0).sequence == 0


def test_turns_share_no_id(small_archive: Path) -> None:
    """Three turns are three times the spans, under as many ids, moved on by one period each."""
    once = replayed(small_archive, Settings(ids="remap"))
    thrice = replayed(small_archive, Settings(ids="remap", loops=3))
    assert len(thrice) == 3 * len(once)
    ids = edges(thrice)
    assert max(ids.values()) == 1
    first = [int(batch.columns.start_ns.min()) for batch in thrice[:: len(once)]]
    assert first[1] - first[0] == first[2] - first[1] > 0
    assert len({(batch.producer, batch.sequence) for batch in thrice}) == len(thrice)
