"""Reads recordings: activity buffers as CUPTI delivered them (``X.bin`` or ``X.bin.xz``) with ``X.json`` beside."""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spanlite.agent.activity import Activity
from spanlite.agent.description import Description, load_json
from spanlite.agent.layouts import Layout, layout_for
from spanlite.agent.walk import walk
from spanlite.contract.errors import RecordingError, UsageError

MAX_BYTES = 4 << 30
"""A recording larger than this, decompressed, is refused."""

_BLOCK_BYTES = 1 << 20
_XZ_MEMORY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording, its description checked; the records themselves are not read yet.

    Attributes:
        path: the file that holds the bytes.
        data: activity records back to back.
        cupti_version: as ``cuptiGetVersion`` gave it in the recorded process.
        sizes: kind → bytes of a record, as seen when recording.
        counts: kind → number of records.
        names: the pointer value that records hold → the string it pointed to (kernel and NVTX range names).
        unix_ns: wall clock just before and just after ``cupti_ts`` was taken.
        cupti_ts: ``cuptiGetTimestamp``, in ns of the clock of all record times.
        gpu: properties of the device: at least ``name``, ``major``, ``minor``, ``multi_processor_count``, ``index``
            (0 unless stated) and ``uuid`` (None where it was not known).
        dropped: records that CUPTI said it dropped.
        scenario: one word for what ran.
    """

    path: Path
    data: bytes = field(repr=False)
    cupti_version: int
    sizes: Mapping[int, int]
    counts: Mapping[int, int]
    names: Mapping[int, str] = field(repr=False)
    unix_ns: tuple[int, int]
    cupti_ts: int
    gpu: Mapping[str, int | str | None]
    dropped: int
    scenario: str

    def layout(self) -> Layout:
        """The layout of the version that wrote the bytes; LayoutError where it contradicts the sizes seen."""
        return layout_for(self.cupti_version, self.sizes)


def read_recording(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Recording:
    """Reads and checks a recording.

    Args:
        path: ``X.bin`` or ``X.bin.xz``; ``X.json`` must lie beside it.
        max_bytes: refuse more than this, counted after decompression.

    Raises:
        RecordingError: a file is missing or too large, the compression is broken, or the description is malformed.
    """
    path = Path(path)
    stem = path.name.removesuffix(".xz")
    if not stem.endswith(".bin"):
        raise RecordingError(f"{path}: a recording is named *.bin or *.bin.xz; give that file")
    if not path.is_file():
        raise RecordingError(f"{path}: there is no such file; check the path")
    about = path.with_name(stem.removesuffix(".bin") + ".json")
    if not about.is_file():
        raise RecordingError(f"{path}: its description {about.name} is missing; put it beside the recording")
    description = Description(about, load_json(about))
    data = _read_xz(path, max_bytes) if path.suffix == ".xz" else _read_plain(path, max_bytes)
    return Recording(
        path=path,
        data=data,
        cupti_version=description.integer("cupti_version"),
        sizes=description.sizes(),
        counts=description.counts(),
        names=description.names(),
        unix_ns=description.bracket(),
        cupti_ts=description.integer("cupti_ts"),
        gpu=description.gpu(),
        dropped=description.integer("dropped"),
        scenario=description.text("scenario"),
    )


def check_counts(recording: Recording, activity: Activity) -> None:
    """Refuses a recording whose records are not those that its description counts.

    Raises:
        RecordingError: names the kind, the number expected and the number found.
    """
    for kind in sorted({*recording.counts, *activity.counts}):
        expected, found = recording.counts.get(kind, 0), activity.counts.get(kind, 0)
        if expected != found:
            raise RecordingError(
                f"{recording.path}: its description counts {expected} records of kind {kind}, the bytes hold {found}; "
                "the two files do not belong together, or one is damaged: take both from one copy"
            )


def chunks(recording: Recording, max_bytes: int) -> Iterator[memoryview]:
    """Cuts a recording between records into pieces like the buffers that CUPTI fills.

    Args:
        recording: what to cut; the pieces are views of its bytes and make them up in order.
        max_bytes: no piece is longer; every piece but the last is as long as that allows.

    Raises:
        LayoutError: the bytes are no records of the stated version.
        UsageError: a record is longer than ``max_bytes``.
    """
    ends = np.append(walk(recording.data, recording.layout()).offsets[1:], len(recording.data))
    view, start = memoryview(recording.data), 0
    while start < len(view):
        fitting = int(np.searchsorted(ends, start + max_bytes, side="right"))
        end = int(ends[fitting - 1]) if fitting else 0
        if end <= start:
            raise UsageError(
                f"{recording.path}: the record at byte {start} is longer than pieces of {max_bytes} bytes; "
                "allow larger pieces"
            )
        yield view[start:end]
        start = end


def _read_plain(path: Path, max_bytes: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise _too_large(path, max_bytes)
    return data


def _read_xz(path: Path, max_bytes: int) -> bytes:
    """Decompresses block by block, so that a small file cannot ask for unbounded memory."""
    unpack = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
    blocks: list[bytes] = []
    total = 0
    with path.open("rb") as file:
        while not unpack.eof:
            packed = file.read(_BLOCK_BYTES) if unpack.needs_input else b""
            if unpack.needs_input and not packed:
                raise RecordingError(f"{path}: the xz data ends early, the file is truncated; copy it again")
            try:
                blocks.append(unpack.decompress(packed, max_length=_BLOCK_BYTES))
            except lzma.LZMAError as error:
                raise RecordingError(f"{path}: the xz data is corrupt ({error}); copy it again") from error
            total += len(blocks[-1])
            if total > max_bytes:
                raise _too_large(path, max_bytes)
        if unpack.unused_data or file.read(1):
            raise RecordingError(f"{path}: there are bytes after the xz data, the file is corrupt; copy it again")
    return b"".join(blocks)


def _too_large(path: Path, max_bytes: int) -> RecordingError:
    return RecordingError(f"{path}: more than {max_bytes} bytes decompressed; split the recording")
