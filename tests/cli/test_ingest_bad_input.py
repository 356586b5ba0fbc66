"""`spanlite ingest` on what it cannot use: one line that says what, where and what to do, and nothing left behind."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.process import file_of, folder_named, refused, spanlite, tree
from tests.cli.recorded import DATA, SLICE, raw

SMALL = "streams-cupti130500"
Prepare = Callable[[Path], Path]


def recording(folder: Path, *, data: bytes | None = None, about: str | None = None, **changes: Any) -> Path:
    """A copy of a small recording, uncompressed, with other bytes or another description; None leaves a key out."""
    source = raw(SMALL)
    path = folder / "x.bin"
    path.write_bytes(source.data if data is None else data)
    described = {key: value for key, value in {**source.about, **changes}.items() if value is not None}
    (folder / "x.json").write_text(json.dumps(described) if about is None else about)
    return path


def packed(folder: Path, data: bytes) -> Path:
    """The same, the compressed file being `data`."""
    recording(folder).unlink()
    path = folder / "x.bin.xz"
    path.write_bytes(data)
    return path


def xz() -> bytes:
    return (DATA / "h200" / f"{SMALL}.bin.xz").read_bytes()


def without_description(folder: Path) -> Path:
    path = recording(folder)
    path.with_suffix(".json").unlink()
    return path


def table(folder: Path, **columns: Any) -> Path:
    """A Parquet file of these columns."""
    path = folder / "x.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def changed(folder: Path, at: float, length: int = 4000) -> Path:
    """The kernel table with bytes flipped from a share of its length on."""
    data = bytearray(SLICE.read_bytes())
    first = int(at * len(data))
    for place in range(first, min(first + length, len(data) - 8)):
        data[place] ^= 0xFF
    path = folder / "x.parquet"
    path.write_bytes(data)
    return path


LENGTH = len(raw(SMALL).data)
COUNTS = raw(SMALL).about["counts"]
BAD: dict[str, tuple[Prepare, str]] = {
    "cut inside the first record": (lambda f: recording(f, data=raw(SMALL).data[:100]), "x.bin"),
    "cut inside a record": (lambda f: recording(f, data=raw(SMALL).data[: LENGTH // 2 + 4]), "x.bin"),
    "cut in the last record": (lambda f: recording(f, data=raw(SMALL).data[:-8]), "x.bin"),
    "cut between records": (
        lambda f: recording(f, data=raw(SMALL).data[: raw(SMALL).offsets[10][1000]]),
        "do not belong",
    ),
    "no bytes at all": (lambda f: recording(f, data=b""), "the bytes hold 0"),
    "no records": (lambda f: recording(f, data=b"\xff" * 4096), "x.bin"),
    "zeros": (lambda f: recording(f, data=bytes(4096)), "x.bin"),
    "xz cut in its header": (lambda f: packed(f, xz()[:10]), "truncated"),
    "xz cut in the middle": (lambda f: packed(f, xz()[: len(xz()) // 2]), "truncated"),
    "xz without its last byte": (lambda f: packed(f, xz()[:-1]), "truncated"),
    "xz flipped in the middle": (lambda f: packed(f, xz()[:9000] + bytes(64) + xz()[9064:]), "corrupt"),
    "xz and more": (lambda f: packed(f, xz() + b"more"), "after the xz data"),
    "not xz": (lambda f: packed(f, b"PK\x03\x04" * 100), "corrupt"),
    "xz of cut bytes": (lambda f: packed(f, lzma.compress(raw(SMALL).data[:-40])), "x.bin.xz"),
    "older version": (lambda f: recording(f, cupti_version=130001), "wrong CUPTI version"),
    "older version, sizes left out": (lambda f: recording(f, cupti_version=130001, sizes={}), "x.bin"),
    "oldest version, sizes left out": (lambda f: recording(f, cupti_version=24, sizes={}), "x.bin"),
    "no sizes": (lambda f: recording(f, sizes=None), "'sizes' is missing"),
    "unknown version": (lambda f: recording(f, cupti_version=999999), "999999 is unknown"),
    "version as text": (lambda f: recording(f, cupti_version="130500"), "cupti_version is '130500'"),
    "description missing": (without_description, "x.json is missing"),
    "description no JSON": (lambda f: recording(f, about="{"), "no valid JSON"),
    "description empty": (lambda f: recording(f, about=""), "no valid JSON"),
    "description another JSON": (lambda f: recording(f, about="[1]"), "an object is due"),
    "description nested without end": (lambda f: recording(f, about="[" * 100_000), "no valid JSON"),
    "description with a line break": (lambda f: recording(f, cupti_version="a\nb"), "a whole number"),
    "counts differ": (lambda f: recording(f, counts={**COUNTS, "10": 2405}), "counts 2405 records of kind 10"),
    "counts of a kind too many": (lambda f: recording(f, counts={**COUNTS, "2": 1}), "kind 2"),
    "foreign Parquet": (lambda f: table(f, a=[1], b=["x"]), "no column start_ns, duration_ns, kernel"),
    "Parquet with text for times": (
        lambda f: table(f, start_ns=["1"], duration_ns=[1], kernel=["k"]),
        "column start_ns",
    ),
    "Parquet with gaps": (lambda f: table(f, start_ns=[1, None], duration_ns=[1, 1], kernel=["k", "k"]), "start_ns"),
    "Parquet with numbers for names": (lambda f: table(f, start_ns=[1], duration_ns=[1], kernel=[7]), "column kernel"),
    "Parquet without a name": (
        lambda f: table(f, start_ns=[1, 2], duration_ns=[1, 2], kernel=["k", None]),
        "column kernel",
    ),
    "Parquet of nothing": (lambda f: file_of(f, "x.parquet", b""), "no readable Parquet"),
    "Parquet in name only": (lambda f: file_of(f, "x.parquet", b"PAR1" + bytes(100) + b"PAR1"), "no readable Parquet"),
    "Parquet cut": (lambda f: file_of(f, "x.parquet", SLICE.read_bytes()[:50_000]), "no readable Parquet"),
    "Parquet flipped late": (lambda f: changed(f, 0.8), "x.parquet"),
    "Parquet flipped in the middle": (lambda f: changed(f, 0.5), "x.parquet"),
    "Parquet flipped in its footer": (lambda f: changed(f, 0.99), "x.parquet"),
    "nonexistent": (lambda f: f / "none.bin.xz", "none.bin.xz: there is no such file"),
    "nonexistent table": (lambda f: f / "none.parquet", "none.parquet"),
    "nonexistent of no kind": (lambda f: f / "none", "none: no such file"),
    "unknown extension": (lambda f: file_of(f, "x.csv", b"a,b\n"), "x.csv: the name must end in"),
    "folder": (lambda f: folder_named(f, "x"), "x: the name must end in"),
    "folder named like a recording": (lambda f: folder_named(f, "x.bin"), "x.bin: "),
    "folder named like a table": (lambda f: folder_named(f, "x.parquet"), "x.parquet: "),
}


@pytest.mark.parametrize("case", list(BAD))
def test_a_bad_file_is_refused_and_nothing_is_left(case: str, tmp_path: Path) -> None:
    """Proves it for a new archive and new points: neither folder nor file nor temporary file is there afterwards."""
    prepare, said = BAD[case]
    path = prepare(tmp_path)
    before = tree(tmp_path)
    outputs = ("--archive", tmp_path / "new" / "archive", "--points", tmp_path / "p", "--batches", tmp_path / "b")
    refused(spanlite("ingest", path, *outputs), said, path.name.partition(".")[0])
    assert tree(tmp_path) == before


@pytest.mark.parametrize("case", ["cut inside a record", "Parquet flipped in the middle", "nonexistent"])
def test_a_bad_second_file_leaves_an_old_archive_as_it_was(case: str, tmp_path: Path) -> None:
    """Proves that a good first file's spans are not published either, and that old points stay."""
    archive, points = tmp_path / "archive", tmp_path / "points"
    assert spanlite("ingest", SLICE, "--archive", archive, "--points", points, "-q").returncode == 0
    bad = BAD[case][0](tmp_path)
    before = tree(tmp_path)
    good = DATA / "h200" / f"{SMALL}.bin.xz"
    refused(spanlite("ingest", good, bad, "--archive", archive, "--points", points, "-q"))
    assert tree(tmp_path) == before
