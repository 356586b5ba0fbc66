"""Opening damaged spools: each kind of damage by a table, with what must come, what is counted, what is put aside."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.spool import folder as spool_folder
from spanlite.agent.spool.spool import Spool
from spanlite.contract import catalogue
from spanlite.contract.errors import UsageError
from tests.agent.spool.items import SMALL, drain, fill, item, lost, number_of, segments

COUNT = 40


def _each() -> int:
    """Bytes of a record, from the format's description: header, topic, key, value."""
    return 52 + 1 + 1 + len(item(0).value)


def _per_file() -> int:
    return (4096 - 32) // _each()


def _overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(data)


def _flip(path: Path, at: int) -> None:
    _overwrite(path, at, bytes([path.read_bytes()[at] ^ 0xFF]))


def _record(number: int) -> int:
    """Offset of a file's record."""
    return 32 + number * _each()


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as stream:
        stream.truncate(size)


def _future(path: Path) -> None:
    head = struct.pack("<8sHH", b"SPLSPOOL", 2, 0) + path.read_bytes()[12:28]
    _overwrite(path, 0, head + struct.pack("<I", crc32(head)))


FILE = range(_per_file(), 2 * _per_file())
"""Numbers of the items in the second file."""

# What is done to the second of several files → the items that are lost, the reason, the fault, files put aside.
MIDDLE: dict[str, tuple[Callable[[Path], object], list[int], str, str, int]] = {
    "a bit of a value": (lambda path: _flip(path, _record(3) + 60), [FILE[3]], "spool_corrupt", "damage", 0),
    "a bit of a header": (lambda path: _flip(path, _record(3) + 10), [FILE[3]], "spool_corrupt", "damage", 0),
    "a bit of a length": (lambda path: _flip(path, _record(3) + 4), [FILE[3]], "spool_corrupt", "damage", 0),
    "a mark": (lambda path: _flip(path, _record(0)), [FILE[0]], "spool_corrupt", "damage", 0),
    "two records in a row": (
        lambda path: _overwrite(path, _record(3) + 20, bytes(_each())),
        [FILE[3], FILE[4]],
        "spool_corrupt",
        "damage",
        0,
    ),
    "the segment's header": (lambda path: _flip(path, 3), [], "", "segment_header", 0),
    "the segment's version, by a flipped bit": (lambda path: _flip(path, 8), [], "", "segment_header", 0),
    "a file that ends early": (
        lambda path: _cut(path, _record(5) + 100),
        list(FILE[5:]),
        "spool_corrupt",
        "damage",
        1,
    ),
    "zeros to the end": (
        lambda path: _overwrite(path, _record(5), bytes(len(path.read_bytes()) - _record(5))),
        list(FILE[5:]),
        "spool_corrupt",
        "damage",
        1,
    ),
    "no byte left": (lambda path: _cut(path, 0), list(FILE), "spool_missing", "empty_file", 0),
    "the header alone": (lambda path: _cut(path, 32), list(FILE), "spool_missing", "", 0),
    "another program's file": (lambda path: path.write_bytes(b"x" * 500), list(FILE), "spool_corrupt", "damage", 1),
    "a later version": (_future, list(FILE), "spool_version", "version_file", 1),
    "deleted": (lambda path: path.unlink(), list(FILE), "spool_missing", "", 0),
    "renamed": (
        lambda path: path.rename(path.with_name(f"{FILE[0] + 4:020d}.seg")),
        list(FILE),
        "spool_misnamed",
        "misnamed_file",
        1,
    ),
}


@pytest.mark.parametrize("damage", list(MIDDLE))
def test_a_damaged_file_costs_what_is_damaged(damage: str, tmp_path: Path) -> None:
    """All other records come in order; the lost ones are counted exactly, in records and spans, and only once."""
    items = fill(tmp_path, COUNT)
    harm, missing, reason, fault, aside = MIDDLE[damage]
    harm(segments(tmp_path)[1])
    counts = AgentCounts()
    spool = Spool(tmp_path, counts, SMALL)
    assert counts.value(catalogue.AGENT_SPANS_RECOVERED) == sum(one.spans for one in items)
    assert drain(spool) == [one for number, one in enumerate(items) if number not in missing]
    spans = sum(items[number].spans for number in missing)
    assert lost(counts) == (({reason: spans}, {reason: len(missing)}) if missing else ({}, {}))
    assert spool.spans == 0
    faults = counts.by_label(catalogue.AGENT_SPOOL_FAULTS)
    assert fault in faults or not fault
    assert spool.state().quarantined == aside == len(list(tmp_path.glob("quarantine/*")))
    spool.close()
    again = AgentCounts()
    spool = Spool(tmp_path, again, SMALL)
    assert (drain(spool), lost(again)) == ([], ({}, {}))
    spool.close()


# What is done to the last of several files → its items that are lost, records and spans counted by reason.
LAST: dict[str, tuple[Callable[[Path], object], int, tuple[dict[str, int], dict[str, int]]]] = {
    "cut inside a value": (
        lambda path: _cut(path, path.stat().st_size - 100),
        1,
        ({"spool_torn": item(COUNT - 1).spans}, {"spool_torn": 1}),
    ),
    "cut inside a header": (lambda path: _cut(path, path.stat().st_size - _each() + 20), 1, ({}, {"spool_torn": 1})),
    "cut between records": (lambda path: _cut(path, path.stat().st_size - _each()), 1, ({}, {})),
    "zeros behind": (lambda path: _overwrite(path, path.stat().st_size, bytes(5000)), 0, ({}, {"spool_torn": 1})),
    "noise behind": (
        lambda path: _overwrite(path, path.stat().st_size, b"SPLR" * 500),
        0,
        ({}, {"spool_corrupt": 1}),
    ),
    "a bit of the last value": (
        lambda path: _flip(path, path.stat().st_size - 5),
        1,
        ({"spool_corrupt": item(COUNT - 1).spans}, {"spool_corrupt": 1}),
    ),
}


@pytest.mark.parametrize("damage", list(LAST))
def test_a_torn_end_is_cut_and_what_follows_is_whole(damage: str, tmp_path: Path) -> None:
    """What lies before comes; new records after it come, too; and the next opening finds nothing wrong any more."""
    items = fill(tmp_path, COUNT)
    harm, missing, counted = LAST[damage]
    harm(segments(tmp_path)[-1])
    counts = AgentCounts()
    spool = Spool(tmp_path, counts, SMALL)
    assert lost(counts) == counted
    assert spool.append(item(100)) is None
    spool.close()
    spool = Spool(tmp_path, AgentCounts(), SMALL)
    assert drain(spool) == [*items[: COUNT - missing], item(100)]
    spool.close()


@pytest.mark.parametrize(
    "cursor",
    [b"", b"x" * 32, b"x" * 5000, struct.pack("<8sHHQQI", b"SPLCURSR", 9, 0, 30, 0, 0)],
    ids=["empty", "noise", "long", "unchecked"],
)
def test_a_bad_cursor_sends_everything_again(cursor: bytes, tmp_path: Path) -> None:
    """Records twice rather than none: nothing on disk is taken for delivered on the word of a broken file."""
    items = fill(tmp_path, COUNT)
    spool = Spool(tmp_path, AgentCounts(), SMALL)
    for sequence in range(1, 6):
        found = spool.fetch(sequence)
        assert found is not None
        spool.ack(found.sequence)
    spool.close()
    (tmp_path / "cursor").write_bytes(cursor)
    counts = AgentCounts()
    spool = Spool(tmp_path, counts, SMALL)
    assert drain(spool) == items
    assert counts.by_label(catalogue.AGENT_SPOOL_FAULTS) == {"cursor": 1}
    assert lost(counts) == ({}, {})
    spool.close()


def test_a_cursor_beyond_the_records_goes_on_from_there(tmp_path: Path) -> None:
    """After a loss of power the cursor may be newer than the files: new records still come, and survive an opening."""
    fill(tmp_path, 20)
    spool = Spool(tmp_path, AgentCounts(), SMALL)
    drain(spool)
    spool.close()
    assert segments(tmp_path) == []
    spool = Spool(tmp_path, AgentCounts(), SMALL)
    assert spool.end == 21
    assert spool.append(item(7)) is None
    spool.close()
    spool = Spool(tmp_path, AgentCounts(), SMALL)
    assert drain(spool) == [item(7)]
    spool.close()


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    """Files, folders and links that are no segments are neither read nor touched."""
    items = fill(tmp_path, COUNT)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f"{5:020d}.seg").mkdir()
    (tmp_path / f"{6:020d}.seg").symlink_to(tmp_path / "notes.txt")
    spool = Spool(tmp_path, AgentCounts(), SMALL)
    assert drain(spool) == items
    spool.close()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / f"{5:020d}.seg").is_dir()
    assert (tmp_path / f"{6:020d}.seg").is_symlink()


def test_a_segment_of_another_spool_is_put_aside(tmp_path: Path) -> None:
    """A copy under another name, or one that overlaps, does not bring its records twice."""
    items = fill(tmp_path, COUNT)
    first, *_, last = segments(tmp_path)
    shutil.copy(first, first.with_name(f"{3:020d}.seg"))
    shutil.copy(last, last.with_name(f"{10**6:020d}.seg"))
    counts = AgentCounts()
    spool = Spool(tmp_path, counts, SMALL)
    assert drain(spool) == items
    assert counts.by_label(catalogue.AGENT_SPOOL_FAULTS) == {"misnamed_file": 2}
    spool.close()


def test_quarantine_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage at every start does not fill the disk: the oldest files that were put aside go."""
    monkeypatch.setattr(spool_folder, "MOST_QUARANTINED_FILES", 3)
    for _ in range(6):
        fill(tmp_path, 12)
        segments(tmp_path)[-1].write_bytes(b"x" * 100)
        Spool(tmp_path, AgentCounts(), SMALL).close()
    assert len(list(tmp_path.glob("quarantine/*"))) == 3


def test_damage_while_it_runs_is_counted_when_it_is_read(tmp_path: Path) -> None:
    """A record that was good at the start and is bad when its turn comes: it alone is lost, and nothing stops."""
    items = fill(tmp_path, COUNT)
    counts = AgentCounts()
    spool = Spool(tmp_path, counts, SMALL)
    second, third = segments(tmp_path)[1:3]
    _flip(second, _record(2) + 70)
    _flip(second, _record(5) + 10)
    third.unlink()
    missing = {FILE[2], FILE[5], *range(2 * _per_file(), 3 * _per_file())}
    assert drain(spool) == [one for number, one in enumerate(items) if number not in missing]
    gone = {number: items[number].spans for number in missing}
    third_spans = sum(gone[number] for number in range(2 * _per_file(), 3 * _per_file()))
    assert lost(counts) == (
        {"spool_corrupt": gone[FILE[2]] + gone[FILE[5]], "spool_unreadable": third_spans},
        {"spool_corrupt": 2, "spool_unreadable": _per_file()},
    )
    assert spool.spans == 0
    spool.close()


def test_a_folder_has_one_spool_at_a_time(tmp_path: Path) -> None:
    """The second is told who has it; when the first is closed it may."""
    first = Spool(tmp_path, AgentCounts(), SMALL)
    with pytest.raises(UsageError, match=r"in use by process [0-9]+; stop that agent"):
        Spool(tmp_path, AgentCounts(), SMALL)
    first.close()
    Spool(tmp_path, AgentCounts(), SMALL).close()


def test_bytes_of_a_record_inside_a_value_are_no_record(tmp_path: Path) -> None:
    """A traced process that puts a spool's records into its names gains nothing when the record around is damaged."""
    inner = fill(tmp_path / "inner", 3)
    content = segments(tmp_path / "inner")[0].read_bytes()[32:]
    spool = Spool(tmp_path / "outer", AgentCounts(), SMALL)
    outer = item(0)
    for value in (outer.value, content, item(2).value):
        assert spool.append(type(outer)("t", b"k", value, 1, 1)) is None
    spool.close()
    (path,) = segments(tmp_path / "outer")
    _flip(path, _record(1) + 53)
    spool = Spool(tmp_path / "outer", AgentCounts(), SMALL)
    assert [number_of(one) for one in drain(spool)] == [0, 2]
    assert inner
    spool.close()
