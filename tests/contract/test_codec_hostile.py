"""Batches made to do harm: each is refused with its reason, nothing but BatchError escapes, and memory stays flat."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from spanlite.contract.codec import DEFAULT_LIMITS, Limits, decode_batch, encode_batch
from spanlite.contract.errors import BatchError
from spanlite.v1 import batch_pb2
from tests.contract.columns_strategy import sample_batch
from tests.contract.mutations import unwrap, wrap

_ROOT = Path(__file__).parents[2]
_Header = batch_pb2.SpanBatch
_Body = batch_pb2.SpanColumns
_BOMB_BYTES = 200_000_000


def _tampered(header_edit: Callable[[_Header], object], body_edit: Callable[[_Body], object]) -> bytes:
    header, body = unwrap(encode_batch(sample_batch(300)))
    columns = _Body.FromString(body)
    body_edit(columns)
    data = _Header.FromString(wrap(header, columns.SerializeToString()))
    header_edit(data)
    return data.SerializeToString()


def _reason(data: bytes, limits: Limits = DEFAULT_LIMITS) -> str:
    with pytest.raises(BatchError) as caught:
        decode_batch(data, limits)
    assert str(caught.value).startswith(f"{caught.value.reason}: ")
    return caught.value.reason


def _column(name: str, **values: int | bytes) -> Callable[[_Body], None]:
    def edit(body: _Body) -> None:
        holder = body
        *path, last = name.split(".")
        for step in path:
            holder = getattr(holder, step)
        getattr(holder, last).CopyFrom(batch_pb2.Column(**values))  # type: ignore[arg-type]  # width, base, planes

    return edit


def _keep(_: object) -> None:
    """No edit."""


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (_column("gap", width=3, planes=b"\x00" * 900), "column_width"),
        (_column("duration", width=9, planes=b"\x00" * 2700), "column_width"),
        (_column("gap", width=2**32 - 1), "column_width"),
        (_column("gap", width=1, planes=b"\x00" * 299), "column_length"),
        (_column("gap", width=1, planes=b"\x00" * 301), "column_length"),
        (_column("correlation", width=0, planes=b"\x00"), "column_length"),
        (_column("configs.grid_x", width=4, planes=b"\x00"), "column_length"),
        (_column("bytes", width=1, planes=b""), "column_length"),
        (_column("duration", base=-1), "value"),
        (_column("duration", width=1, base=-1, planes=b"\x00" + b"\x01" * 299), "value"),
        (_column("kind", base=0), "value"),
        (_column("kind", base=8), "value"),
        (_column("kind", base=257), "value"),
        (_column("kind", base=-255), "value"),
        (_column("weight", base=-1), "value"),
        (_column("weight", base=0), "value"),
        (_column("weight", base=2**32), "value"),
        (_column("bytes", base=-1), "value"),
        (_column("range_number", base=-2), "value"),
        (_column("configs.grid_x", base=-1), "value"),
        (_column("configs.grid_x", base=2**32), "value"),
        (_column("places.priority", base=2**31), "value"),
        (_column("places.gpu", width=4, base=2**40, planes=b"\x00" * 12), "value"),
        (_column("config", base=6), "index"),
        (_column("config", base=-1), "index"),
        (_column("config", base=2**32), "index"),
        (_column("config", width=8, planes=b"\x00" * 2399 + b"\x80"), "index"),
        (_column("place", base=3), "index"),
        (_column("node", base=4), "index"),
        (_column("stage", base=8), "index"),
        (_column("trace", base=4), "index"),
        (_column("trace", base=-1), "index"),
        (_column("configs.kernel", base=8), "index"),
        (_column("configs.name", base=-1), "index"),
        (_column("places.gpu", base=3), "index"),
        (_column("places.gpu", base=-1), "index"),
        (lambda body: setattr(body.configs, "rows", 2**32 - 1), "table_rows"),
        (lambda body: setattr(body.places, "rows", 65_537), "table_rows"),
        (lambda body: setattr(body.nodes, "rows", 65_537), "table_rows"),
        (lambda body: setattr(body.traces, "rows", 65_537), "table_rows"),
        (lambda body: body.strings.extend([""] * 65_536), "table_rows"),
        (lambda body: setattr(body.traces, "rows", 2), "column_length"),
        (lambda body: setattr(body.traces, "ids", b"x" * 47), "column_length"),
        (lambda body: body.strings.append("x" * (2**20 + 1)), "string_bytes"),
        (lambda body: body.strings.append("é" * (2**19 + 1)), "string_bytes"),
        (lambda body: body.strings.__setitem__(0, "not empty"), "value"),
        (lambda body: body.ClearField("strings"), "value"),
    ],
)
def test_a_body_that_breaks_a_rule_is_refused_with_the_rule_s_name(edit: Callable[[_Body], None], reason: str) -> None:
    """One field of a sound body is changed; the reason says which rule it breaks."""
    assert _reason(_tampered(_keep, edit)) == reason


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("format", 0, "format"),
        ("format", 2, "format"),
        ("producer", b"", "producer"),
        ("producer", b"x" * 17, "producer"),
        ("rows", 65_537, "rows"),
        ("rows", 2**32 - 1, "rows"),
        ("rows", 299, "column_length"),
        ("first_row", 2**63 - 299, "first_row"),
        ("first_row", 2**64 - 1, "first_row"),
        ("body_size", (32 << 20) + 1, "body_bytes"),
        ("body_size", 1, "body_size"),
        ("body", b"", "zstd"),
        ("body", b"\x28\xb5\x2f\xfd", "zstd"),
        ("body", b"not a frame at all", "zstd"),
        ("compression", 0, "compression"),
        ("compression", 3, "compression"),
        ("compression", 1, "body_size"),
    ],
)
def test_a_header_that_breaks_a_rule_is_refused_with_the_rule_s_name(
    field: str, value: bytes | int, reason: str
) -> None:
    """One field of a sound header is changed."""
    assert _reason(_tampered(lambda header: setattr(header, field, value), _keep)) == reason


def test_an_unknown_sampling_mode_is_refused() -> None:
    """How spans were chosen decides what their counts mean, so it is not guessed."""
    assert _reason(_tampered(lambda header: setattr(header.sampling, "mode", 9), _keep)) == "sampling"


def test_a_gpu_that_the_header_does_not_list_is_refused() -> None:
    """A place cannot name a GPU without identity."""
    assert _reason(_tampered(lambda header: header.gpus.pop(), _keep)) == "index"


@pytest.mark.parametrize("data", [b"", b"\x08", b"\x08\x02", b"garbage", b"\xff" * 100])
def test_bytes_that_are_no_batch_are_refused(data: bytes) -> None:
    """Short and foreign bytes end as no message, or as one of an unknown layout."""
    assert _reason(data) in {"not_protobuf", "format"}


def test_a_body_that_is_no_message_is_refused() -> None:
    """Sound frame, foreign content."""
    header, _ = unwrap(encode_batch(sample_batch(3)))
    assert _reason(wrap(header, b"\xff\xff\xff")) == "not_protobuf"
    assert _reason(wrap(header, b"\x0a\x02\xff\xfe")) == "not_protobuf", "a text that is no UTF-8"


def test_a_flipped_bit_in_the_frame_is_found_by_its_checksum() -> None:
    """The last four bytes of the frame are its checksum; the content before it is untouched."""
    message = _Header.FromString(encode_batch(sample_batch(300)))
    message.body = message.body[:-1] + bytes([message.body[-1] ^ 1])
    assert _reason(message.SerializeToString()) == "zstd"


def test_a_message_over_the_limit_is_refused_unread() -> None:
    """8 MiB is the largest value that is parsed at all."""
    assert _reason(b"\x00" * (DEFAULT_LIMITS.message_bytes + 1)) == "message_bytes"


def test_a_reader_may_set_tighter_limits() -> None:
    """Each limit is enforced where it is given, one below what the batch needs."""
    data = encode_batch(sample_batch(300))
    size = _Header.FromString(data).body_size
    assert _reason(data, Limits(message_bytes=len(data) - 1)) == "message_bytes"
    assert _reason(data, Limits(body_bytes=size - 1)) == "body_bytes"
    assert _reason(data, Limits(rows=299)) == "rows"
    assert _reason(data, Limits(table_rows=7)) == "table_rows"
    assert _reason(data, Limits(string_bytes=20)) == "string_bytes"
    exact = Limits(message_bytes=len(data), body_bytes=size, rows=300, table_rows=8, string_bytes=21)
    assert len(decode_batch(data, exact).columns) == 300


def _zeros(total: int, *, tell_size: bool = True) -> bytes:
    """A frame of zeros, made without holding them."""
    compressor = zstandard.ZstdCompressor(level=19, write_content_size=tell_size)
    stream = compressor.compressobj(size=total if tell_size else -1)
    block = bytes(1_000_000)
    return b"".join(stream.compress(block) for _ in range(total // len(block))) + stream.flush()


def _claim(frame: bytes, size: int) -> bytes:
    """The frame with another content size in its header: 4 bytes after magic, descriptor and window (RFC 8878)."""
    descriptor = frame[4]
    assert descriptor >> 6 == 2, "content size takes 4 bytes"
    at = 5 if descriptor & 0b100000 else 6
    return frame[:at] + struct.pack("<I", size) + frame[at + 4 :]


def _bombs() -> Iterator[tuple[str, bytes, int, str]]:
    """Name, body, declared size, reason."""
    frame = _zeros(_BOMB_BYTES)
    unknown = _zeros(_BOMB_BYTES, tell_size=False)
    assert len(frame) < 20_000
    assert len(unknown) < 20_000
    yield "true size", frame, _BOMB_BYTES, "body_bytes"
    yield "lying body_size", frame, 1_000, "body_size"
    yield "lying frame and body_size", _claim(frame, 100_000), 100_000, "zstd"
    yield "unknown content size", unknown, 1_000, "body_size"
    yield "unknown content size, none declared", unknown, 0, "body_size"
    yield "many frames", _zeros(1_000_000) * 200, 1_000_000, "zstd"
    yield "nothing, then a bomb", zstandard.ZstdCompressor().compress(b"") + frame, 0, "value"
    yield "skippable frame, then a bomb", struct.pack("<II", 0x184D2A50, 4) + b"skip" + frame, 0, "zstd"


_PROGRAM = """
import sys
from pathlib import Path
from spanlite.contract.codec import Limits, decode_batch, encode_batch
from spanlite.contract.errors import BatchError
from tests.contract.columns_strategy import sample_batch

def peak_kib():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])

decode_batch(encode_batch(sample_batch(300)))
data, limits = Path(sys.argv[1]).read_bytes(), Limits(body_bytes=int(sys.argv[2]))
before = peak_kib()
try:
    decode_batch(data, limits)
    reason = "accepted"
except BatchError as error:
    reason = error.reason
print(reason, peak_kib() - before)
"""


def _growth_kib(path: Path, body_bytes: int = DEFAULT_LIMITS.body_bytes) -> tuple[str, int]:
    """Reason, and how far the peak memory of a process of its own rises when it decodes the file's bytes.

    The peak is VmHWM: ru_maxrss starts at the parent's peak, so that behind a large parent nothing would show.
    """
    environment = {"PYTHONPATH": ":".join([str(_ROOT), str(_ROOT / "proto"), str(_ROOT / "core")])}
    command = [sys.executable, "-c", _PROGRAM, str(path), str(body_bytes)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    reason, grown = done.stdout.split()
    return reason, int(grown)


def test_the_meter_sees_a_bomb_that_goes_off(tmp_path: Path) -> None:
    """Control for the tests below: with the limit lifted the same bomb takes its 200 MB, and the meter shows them."""
    header, _ = unwrap(encode_batch(sample_batch(3)))
    header.body, header.body_size = _zeros(_BOMB_BYTES), _BOMB_BYTES
    path = tmp_path / "bomb"
    path.write_bytes(header.SerializeToString())
    reason, grown_kib = _growth_kib(path, body_bytes=1 << 28)
    assert reason == "fields"
    assert grown_kib > 190_000


@pytest.mark.parametrize("bomb", list(_bombs()), ids=lambda bomb: str(bomb[0]))
def test_a_bomb_is_refused_with_flat_memory(bomb: tuple[str, bytes, int, str], tmp_path: Path) -> None:
    """6 KB that would become 200 MB cost less than 4 MiB, whatever they say of themselves."""
    _, body, size, reason = bomb
    header, _ = unwrap(encode_batch(sample_batch(3)))
    header.body, header.body_size = body, size
    path = tmp_path / "bomb"
    path.write_bytes(header.SerializeToString())
    found, grown_kib = _growth_kib(path)
    assert found == reason
    assert grown_kib < 4 << 10


def _crowds() -> Iterator[tuple[str, bytes, str, int]]:
    """Name, message, reason, KiB allowed: messages of many tiny entries, each of which would cost 16 bytes and more."""
    header, body = unwrap(encode_batch(sample_batch(3)))
    sound = header.SerializeToString()
    yield "4 million GPUs", sound + b"\x6a\x00" * 4_000_000, "fields", 12 << 10
    yield "16 million texts", wrap(header, body + b"\x0a\x00" * 16_000_000), "fields", 44 << 10
    yield "a group", sound + b"\xa3\x7d" * 200_000, "fields", 4 << 10
    columns = batch_pb2.SpanColumns(strings=[""], kind=batch_pb2.Column(base=1))
    for table in (columns.configs, columns.places, columns.nodes):
        table.rows = 65_536
    header.rows = 65_536
    yield "65,536 rows of everything from 100 bytes", wrap(header, columns.SerializeToString()), "accepted", 48 << 10


@pytest.mark.parametrize("crowd", list(_crowds()), ids=lambda crowd: str(crowd[0]))
def test_small_entries_in_masses_cannot_take_much_memory(crowd: tuple[str, bytes, str, int], tmp_path: Path) -> None:
    """What a message costs is bounded by the limits, not by what its parser would make of it."""
    _, data, reason, allowed_kib = crowd
    path = tmp_path / "crowd"
    path.write_bytes(data)
    found, grown_kib = _growth_kib(path)
    assert found == reason
    assert grown_kib < allowed_kib


def test_twenty_thousand_damaged_batches_raise_batch_errors_only(tmp_path: Path) -> None:
    """Bit flips, cuts, splices, lengths and fields, on the wire and in the body; what is accepted re-encodes equal."""
    report = tmp_path / "report.json"
    subprocess.run(
        [sys.executable, str(_ROOT / "benchmarks" / "fuzz_codec.py"), "--mutations=20000", f"--json={report}"],
        capture_output=True,
        check=True,
    )
    figures = json.loads(report.read_text())
    assert figures["mutations"] == sum(figures["reasons"].values()) == 20_000
    reached = {"accepted", "not_protobuf", "zstd", "column_width", "column_length", "table_rows", "index", "value"}
    assert reached <= set(figures["reasons"]), "both layers and every check are reached"
    assert figures["grown_mib"] < 32
