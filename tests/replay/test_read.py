"""Archive to batches: everything comes back as it was, in order, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from spanlite.cli.replay_run import ArchiveFiles
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import RANGE
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.compact import compact
from spanlite.replay.plan import make_plan
from spanlite.replay.prepare import Settings
from spanlite.replay.read import Reader
from spanlite.replay.selection import Selection
from tests.native.without import numpy_only
from tests.replay.archives import edges, lines, prepared, replayed, write_archive

HOUR = 3_600 * 10**9
LAYOUTS: list[dict[str, int]] = [
    {},
    {"buckets": 16},
    {"buckets": 4, "row_group_rows": 500},
    {"buckets": 2, "roll_spans": 4000, "row_group_rows": 1500},
]


def by_name(batch: Batch) -> tuple[bytes, int]:
    """Sort key of a batch."""
    return batch.producer, batch.sequence


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_batch_comes_back_as_it_was(
    recorded: list[Batch], facts: Callable[[Batch], Any], tmp_path: Path, layout: dict[str, int]
) -> None:
    """All columns, ids, tables and headers of every batch survive, whatever files and row groups they lay in."""
    write_archive(tmp_path, recorded, **layout)
    got = replayed(tmp_path, window_spans=7000, open_groups=5)
    assert [facts(batch) for batch in sorted(got, key=by_name)] == [
        facts(batch) for batch in sorted(recorded, key=by_name)
    ]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(ids="remap", shift="offset=+1h"),
        Settings(selection=Selection(kernels=("*elementwise*",))),
    ],
    ids=["kept", "mapped", "some"],
)
def test_messages_are_those_of_the_codec(
    recorded: list[Batch], archive: Path, tmp_path: Path, settings: Settings
) -> None:
    """What the library encodes, headers included, is to the byte what encoding each batch by itself gives."""
    late = [
        replace(
            batch,
            columns=replace(
                batch.columns, duration_ns=np.where(batch.columns.kind == RANGE, HOUR, batch.columns.duration_ns)
            ),
        )
        for batch in recorded
    ]
    for root in (archive, write_archive(tmp_path, late)):  # ranges that end after all work of the GPU
        payloads = [ready.payload for ready in prepared(root, settings)]
        assert payloads
        assert payloads == [encode_batch(decode_batch(payload)) for payload in payloads]
        with numpy_only():
            assert payloads == [ready.payload for ready in prepared(root, settings)]


def test_batches_whose_rows_alternate_come_back(
    small: list[Batch], facts: Callable[[Batch], Any], tmp_path: Path
) -> None:
    """Of one process, three batches at the same times outside traces: their rows lie one beside the other."""
    alike = [
        replace(
            batch,
            sequence=batch.sequence * 3 + number,
            first_row=batch.first_row + number * 1_000_000,
            columns=replace(batch.columns, trace=np.full(len(batch.columns), -1, dtype=np.int32)),
        )
        for batch in small[:6]
        for number in range(3)
    ]
    write_archive(tmp_path, alike)
    sequences = pq.read_table(tmp_path, columns=["batch_sequence"])["batch_sequence"].to_pylist()
    assert sum(before != after for before, after in pairwise(sequences)) > len(sequences) / 3
    with numpy_only():
        plain = [facts(batch) for batch in sorted(replayed(tmp_path), key=by_name)]
    got = [facts(batch) for batch in sorted(replayed(tmp_path), key=by_name)]
    assert got == plain == [facts(batch) for batch in sorted(alike, key=by_name)]


def test_a_compacted_archive_gives_the_same(
    recorded: list[Batch], facts: Callable[[Batch], Any], tmp_path: Path
) -> None:
    """Files of several producers with joined dictionaries are read like those that they replace."""
    write_archive(tmp_path, recorded, roll_spans=5000)
    before = [facts(batch) for batch in replayed(tmp_path)]
    assert compact(tmp_path)
    assert [facts(batch) for batch in replayed(tmp_path)] == before


@pytest.mark.parametrize("order", ["arrival", "start"])
def test_batches_come_in_the_order_asked_for(archive: Path, order: str) -> None:
    """Times of successive batches never fall, over all files and producers."""
    got = replayed(archive, Settings(order=order), window_spans=4000)
    times = [batch.emit_ns if order == "arrival" else int(batch.columns.start_ns.min()) for batch in got]
    assert times == sorted(times)
    assert len({batch.producer for batch in got}) > 1


def test_many_small_files_are_read_in_bounded_memory(small: list[Batch], tmp_path: Path) -> None:
    """No more row groups than allowed are ever held, none is read again while they fit, and nothing is lost."""
    for begin in range(0, len(small), 3):
        write_archive(tmp_path, small[begin : begin + 3], buckets=2, row_group_rows=64)
    files = ArchiveFiles(str(tmp_path))
    groups = sum(files.open(source).num_row_groups for source in files.sources)
    assert len(files.sources) > 15
    plan = make_plan(files, Selection())
    reader = Reader(files, plan, Selection(), window_spans=300, open_groups=8)
    got = [batch for _, parts in reader.batches() for batch in parts]
    assert lines(got) == lines(small)
    assert reader.reading.most_groups <= 8
    assert reader.reading.most_spans <= 8 * 64
    assert groups <= reader.reading.groups_read <= 2 * groups


def test_a_cache_of_one_row_group_changes_nothing(small: list[Batch], tmp_path: Path) -> None:
    """Row groups that are put out and read again give the same rows."""
    write_archive(tmp_path, small, buckets=8, row_group_rows=200)
    files = ArchiveFiles(str(tmp_path))
    plan = make_plan(files, Selection())
    reader = Reader(files, plan, Selection(), window_spans=100, open_groups=1)
    assert edges([batch for _, parts in reader.batches() for batch in parts]) == edges(small)
    assert reader.reading.most_groups == 1


def test_a_batch_that_was_archived_twice_comes_once(small: list[Batch], tmp_path: Path) -> None:
    """Rows that lie in two files, in other company, are not doubled."""
    write_archive(tmp_path, small)
    write_archive(tmp_path, small[3:9])
    assert lines(replayed(tmp_path)) == lines(small)


def test_missing_rows_cut_a_batch_and_change_no_id(recorded: list[Batch], tmp_path: Path) -> None:
    """Where a file was removed, the rest comes in consecutive pieces, with the ids that it had and own names."""
    write_archive(tmp_path, recorded, buckets=4)
    lost = sorted(tmp_path.rglob("bucket=02/*.parquet"))
    assert lost
    for file in lost:
        file.unlink()
    got = replayed(tmp_path)
    left, whole = edges(got), edges(recorded)
    assert 0 < left.total() < whole.total()
    assert not left - whole
    assert len({(batch.producer, batch.sequence) for batch in got}) == len(got)


def test_reading_can_begin_anywhere(small_archive: Path) -> None:
    """From batch n on come exactly the batches that come from there when all is read."""
    files = ArchiveFiles(str(small_archive))
    plan = make_plan(files, Selection())
    whole = [number for number, _ in Reader(files, plan, Selection()).batches()]
    assert whole == list(range(len(plan)))
    for begin in (0, 1, len(plan) // 2, len(plan) - 1, len(plan)):
        got = list(Reader(files, plan, Selection(), window_spans=250).batches(begin))
        assert [number for number, _ in got] == whole[begin:]
        assert all(int(np.sum([len(b.columns) for b in parts])) == plan.spans[number] for number, parts in got)


def test_a_damaged_file_is_named(small: list[Batch], tmp_path: Path) -> None:
    """Bytes overwritten in the middle of a file end in an error that names it, not in wrong spans."""
    write_archive(tmp_path, small)
    file = next(tmp_path.rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[1000:9000] = bytes(8000)
    file.write_bytes(data)
    with pytest.raises(ArchiveError, match=file.name):
        replayed(tmp_path)
