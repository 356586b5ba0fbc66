"""Recordings on disk: what is read, and what is refused with which words."""

from __future__ import annotations

import json
import lzma
import struct
from pathlib import Path
from typing import Any

import pytest

from spanlite.agent.activity import decode
from spanlite.agent.recording import Recording, check_counts, chunks, read_recording
from spanlite.contract.errors import LayoutError, RecordingError, UsageError

_DATA = Path(__file__).parents[1] / "data" / "h200"
_RECORDS = b"".join(struct.pack("<iiQII", 39, 5, n, n, 0) for n in range(10))
_ABOUT: dict[str, Any] = {
    "cupti_version": 130500,
    "unix_ns": [100, 200],
    "cupti_ts": 150,
    "scenario": "made",
    "props": {"name": "NVIDIA H200", "major": 9, "minor": 0, "multi_processor_count": 132, "uuid": None, "share": 0.5},
    "dropped": 3,
    "counts": {"39": 10},
    "sizes": {"39": [24]},
    "names": {"1251743888": "request:0"},
}


def _write(
    folder: Path, about: object = _ABOUT, data: bytes = _RECORDS, name: str = "x.bin", text: str | None = None
) -> Path:
    path = folder / name
    path.write_bytes(lzma.compress(data) if name.endswith(".xz") else data)
    (folder / "x.json").write_text(json.dumps(about) if text is None else text)
    return path


@pytest.mark.parametrize("name", ["x.bin", "x.bin.xz"])
def test_plain_and_compressed_recordings_read_the_same(tmp_path: Path, name: str) -> None:
    """Every value of the description arrives under its name and type, the bytes unchanged."""
    path = _write(tmp_path, name=name)
    assert read_recording(str(path)) == Recording(
        path=path,
        data=_RECORDS,
        cupti_version=130500,
        sizes={39: 24},
        counts={39: 10},
        names={1251743888: "request:0"},
        unix_ns=(100, 200),
        cupti_ts=150,
        gpu={"name": "NVIDIA H200", "major": 9, "minor": 0, "multi_processor_count": 132, "uuid": None, "index": 0},
        dropped=3,
        scenario="made",
    )


def test_recording_of_an_h200_reads_whole() -> None:
    """A recording of CUPTI 13.0: version, clock, device, names, and as many bytes as its records need."""
    recording = read_recording(_DATA / "serve-cupti130001.bin.xz")
    assert recording.cupti_version == 130001
    assert recording.unix_ns == (1795959461179081778, 1795959461179092300)
    assert recording.cupti_ts == 1795959461179091664
    assert recording.scenario == "serve"
    assert recording.dropped == 0
    assert recording.gpu["name"] == "NVIDIA H200"
    assert recording.gpu["multi_processor_count"] == 132
    assert recording.counts == {12: 226, 10: 19628, 2: 72, 38: 6}
    assert len(recording.data) == 226 * 56 + 19628 * 216 + 72 * 88 + 6 * 56
    assert recording.names[1251743888] == "request:0"


@pytest.mark.parametrize("name", ["serve-cupti130001", "streams-cupti130500"])
def test_every_kernel_name_is_in_the_recording(name: str) -> None:
    """Each pointer that a kernel record holds has its string."""
    recording = read_recording(_DATA / f"{name}.bin.xz")
    activity = decode(recording.data, recording.layout())
    check_counts(recording, activity)
    assert set(activity.kernels["name"].tolist()) <= set(recording.names)


def test_missing_files_are_named(tmp_path: Path) -> None:
    """No such recording, no description beside it, or a name that is no recording's."""
    with pytest.raises(RecordingError, match=r"none\.bin: there is no such file"):
        read_recording(tmp_path / "none.bin")
    with pytest.raises(RecordingError, match=r"x\.json: a recording is named \*\.bin or \*\.bin\.xz"):
        read_recording(tmp_path / "x.json")
    path = _write(tmp_path, name="x.bin.xz")
    (tmp_path / "x.json").unlink()
    with pytest.raises(RecordingError, match=r"x\.bin\.xz: its description x\.json is missing"):
        read_recording(path)


def test_xz_cut_at_any_place_is_truncated(tmp_path: Path) -> None:
    """Every prefix of the compressed file is refused."""
    path = _write(tmp_path, name="x.bin.xz")
    packed = path.read_bytes()
    for length in range(len(packed)):
        path.write_bytes(packed[:length])
        with pytest.raises(RecordingError, match="ends early, the file is truncated"):
            read_recording(path)


def test_corrupt_xz_is_refused(tmp_path: Path) -> None:
    """Bytes that are no xz data, a flipped bit, and bytes after the end."""
    path = _write(tmp_path, name="x.bin.xz")
    packed = path.read_bytes()
    for broken in (b"no xz at all", packed[:40] + bytes([packed[40] ^ 1]) + packed[41:], packed + b"more"):
        path.write_bytes(broken)
        with pytest.raises(RecordingError, match=r"corrupt.*copy it again"):
            read_recording(path)


@pytest.mark.parametrize("name", ["x.bin", "x.bin.xz"])
def test_recording_larger_than_allowed_is_refused(tmp_path: Path, name: str) -> None:
    """The bound is on decompressed bytes, and exact."""
    path = _write(tmp_path, name=name)
    assert len(read_recording(path, max_bytes=240).data) == 240
    with pytest.raises(RecordingError, match="more than 239 bytes"):
        read_recording(path, max_bytes=239)


@pytest.mark.parametrize("key", sorted(_ABOUT))
def test_missing_key_is_named(tmp_path: Path, key: str) -> None:
    """A description without one of its keys names that key."""
    path = _write(tmp_path, {k: v for k, v in _ABOUT.items() if k != key})
    with pytest.raises(RecordingError, match=rf"x\.json: the key '{key}' is missing"):
        read_recording(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cupti_version": "130500"}, "cupti_version is '130500', a whole number"),
        ({"cupti_version": True}, "cupti_version is True, a whole number"),
        ({"cupti_ts": -1}, "cupti_ts is -1, a whole number"),
        ({"dropped": 1.5}, r"dropped is 1\.5, a whole number"),
        ({"dropped": 2**64}, "dropped is 18446744073709551616, a whole number"),
        ({"scenario": None}, "scenario is None, a string"),
        ({"unix_ns": 5}, "unix_ns is 5, a list of two times"),
        ({"unix_ns": [1, 2, 3]}, r"unix_ns is \[1, 2, 3\], a list of two times"),
        ({"unix_ns": [1, "2"]}, "unix_ns is '2', a whole number"),
        ({"unix_ns": [2, 1]}, r"unix_ns is \[2, 1\], the second lies before the first"),
        ({"counts": [1]}, r"counts is \[1\], an object"),
        ({"counts": {"x": 1}}, "counts has the key 'x', a number"),
        ({"counts": {"²": 1}}, "counts has the key '²', a number"),
        ({"counts": {"39": "10"}}, r"counts\.39 is '10', a whole number"),
        ({"sizes": {"39": 24}}, r"sizes\.39 is 24, a list of one size"),
        ({"sizes": {"39": [24, 32]}}, r"sizes\.39 is \[24, 32\], a list of one size"),
        ({"sizes": {"39": [None]}}, r"sizes\.39 is None, a whole number"),
        ({"names": {"1": 5}}, r"names\.1 is 5, a string"),
        ({"props": None}, "props is None, an object"),
        ({"props": {"major": 9, "minor": 0, "multi_processor_count": 132}}, r"props\.name is None, a string"),
        ({"props": {"name": "x", "major": 9, "minor": 0}}, r"props\.multi_processor_count is None, a whole number"),
    ],
)
def test_wrong_type_is_named_with_key_and_value(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """Each value of the wrong type is shown with its key and what is due."""
    path = _write(tmp_path, {**_ABOUT, **change})
    with pytest.raises(RecordingError, match=rf"x\.json: {words}"):
        read_recording(path)


@pytest.mark.parametrize("text", ["", "{", "nul", "\x00", "[" * 100_000])
def test_malformed_json_is_refused(tmp_path: Path, text: str) -> None:
    """A description that is no JSON."""
    with pytest.raises(RecordingError, match=r"x\.json: no valid JSON"):
        read_recording(_write(tmp_path, text=text))


def test_json_that_is_no_object_is_refused(tmp_path: Path) -> None:
    """A description that is JSON, but a list."""
    with pytest.raises(RecordingError, match=r"x\.json: holds a JSON list, an object is due"):
        read_recording(_write(tmp_path, []))


def test_version_that_contradicts_the_sizes_is_refused() -> None:
    """The layout of a recording compares the version stated with the sizes seen."""
    recording = read_recording(_DATA / "streams-cupti130500.bin.xz")
    lying = Recording(**{name: getattr(recording, name) for name in Recording.__slots__} | {"cupti_version": 130001})
    with pytest.raises(LayoutError, match=r"the file says 130001, whose .* records are"):
        lying.layout()


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"39": 11}, "counts 11 records of kind 39, the bytes hold 10"),
        ({}, "counts 0 records of kind 39, the bytes hold 10"),
        ({"39": 10, "10": 1}, "counts 1 records of kind 10, the bytes hold 0"),
    ],
)
def test_counts_that_differ_are_refused(tmp_path: Path, counts: dict[str, int], words: str) -> None:
    """Kind, expected and found are named."""
    recording = read_recording(_write(tmp_path, {**_ABOUT, "counts": counts}))
    with pytest.raises(RecordingError, match=words):
        check_counts(recording, decode(recording.data, recording.layout()))


@pytest.mark.parametrize(
    ("max_bytes", "lengths"),
    [(24, [24] * 10), (47, [24] * 10), (48, [48] * 5), (100, [96, 96, 48]), (240, [240]), (8 << 20, [240])],
)
def test_chunks_are_as_long_as_allowed_and_end_between_records(
    tmp_path: Path, max_bytes: int, lengths: list[int]
) -> None:
    """Pieces make up the recording in order."""
    pieces = list(chunks(read_recording(_write(tmp_path)), max_bytes))
    assert [len(piece) for piece in pieces] == lengths
    assert b"".join(pieces) == _RECORDS


def test_record_longer_than_a_chunk_is_refused(tmp_path: Path) -> None:
    """Pieces too small for a record are the caller's mistake."""
    with pytest.raises(UsageError, match="the record at byte 0 is longer than pieces of 23 bytes"):
        list(chunks(read_recording(_write(tmp_path)), 23))


def test_empty_recording_has_no_chunks(tmp_path: Path) -> None:
    """A recording without records is valid."""
    recording = read_recording(_write(tmp_path, {**_ABOUT, "counts": {}}, b"", "x.bin.xz"))
    check_counts(recording, decode(recording.data, recording.layout()))
    assert list(chunks(recording, 24)) == []


def test_chunks_of_a_recording_decode_to_all_its_records() -> None:
    """Mixed records: the pieces' counts add up to those taken when recording."""
    recording = read_recording(_DATA / "streams-cupti130500.bin.xz")
    pieces = list(chunks(recording, 64 << 10))
    assert b"".join(pieces) == recording.data
    assert all((64 << 10) - 248 < len(piece) <= 64 << 10 for piece in pieces[:-1])
    found = [decode(piece, recording.layout()).counts for piece in pieces]
    assert {kind: sum(counts.get(kind, 0) for counts in found) for kind in recording.counts} == recording.counts
