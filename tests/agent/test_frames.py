"""The collector's protocol: what is packed is read back, and whatever else comes is refused with its reason."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent.frames import (
    HEADER,
    MOST_BYTES,
    STAMP,
    Clock,
    Frame,
    Header,
    pack_clock,
    pack_frame,
    pack_names,
    pack_text,
    unpack_clock,
    unpack_header,
    unpack_names,
    unpack_stamps,
    unpack_text,
)
from spanlite.contract.errors import FrameError

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="=\n"))


def _header(**changed: object) -> bytes:
    fields = {"magic": b"SPLF", "type": 3, "version": 1, "flags": 0, "length": 5, "sequence": 9, **changed}
    return struct.pack("<4sBBHII", *fields.values())


@given(st.sampled_from(Frame), st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_a_frame_is_read_back(kind: Frame, payload: bytes, sequence: int) -> None:
    """Type, length and number of a frame come back, and its payload follows the 16 bytes of the header."""
    frame = pack_frame(kind, payload, sequence)
    assert unpack_header(frame[:16]) == Header(kind, len(payload), sequence)
    assert frame[16:] == payload


def test_a_frame_has_the_bytes_that_the_docs_state() -> None:
    """A BYE with number 258 and three bytes of payload, byte by byte."""
    assert pack_frame(Frame.BYE, b"a=b", 258) == b"SPLF\x07\x01\x00\x00\x03\x00\x00\x00\x02\x01\x00\x00a=b"
    assert HEADER.size == 16
    assert [(kind.name, kind.value) for kind in Frame] == [
        ("HELLO", 1),
        ("NAMES", 2),
        ("BUFFER", 3),
        ("RANGES", 4),
        ("CLOCK", 5),
        ("STATS", 6),
        ("BYE", 7),
        ("OBSERVATIONS", 8),
        ("WINDOWS", 9),
        ("KERNEL_SOURCE", 10),
    ]


def test_frame_numbers_begin_again_after_32_bits() -> None:
    """Number 2^32 is sent as 0."""
    assert unpack_header(pack_frame(Frame.BUFFER, b"", 2**32)[:16]).sequence == 0


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"magic": b"GET "}, "magic"),
        ({"version": 2}, "version"),
        ({"type": 0}, "type"),
        ({"type": 11}, "type"),
        ({"length": MOST_BYTES + 1}, "length"),
        ({"length": 2**32 - 1}, "length"),
    ],
)
def test_a_malformed_header_is_refused_with_its_reason(changed: dict[str, object], reason: str) -> None:
    """Each field of the header that is checked has a reason of its own."""
    with pytest.raises(FrameError) as caught:
        unpack_header(_header(**changed))
    assert caught.value.reason == reason


def test_the_longest_payload_is_accepted() -> None:
    """64 MiB and not a byte more."""
    assert unpack_header(_header(length=64 << 20)).length == 64 << 20


@given(st.dictionaries(_KEYS, _TEXT))
def test_text_is_read_back(values: dict[str, str]) -> None:
    """Any value comes back: line ends, backslashes, equals signs, separators that Python would split at."""
    assert unpack_text(pack_text(values)) == values


def test_text_has_the_bytes_that_the_docs_state() -> None:
    """UTF-8, two escapes, a line feed after every line; half a surrogate pair has no UTF-8 and becomes a '?'."""
    assert pack_text({"a": "1=2\\\n\r", "ü": "\ud800"}) == b"a=1=2\\\\\\n\r\n\xc3\xbc=?\n"


@pytest.mark.parametrize(
    "payload", [b"a=1", b"a\n", b"a=1\n\n", b"a=\xff\n", b"a=\\\n", b"a=\\x41\n", b"a=\\\\\\q\n", b"\x00"]
)
def test_malformed_text_is_refused(payload: bytes) -> None:
    """No equals sign, no line end, no UTF-8, unknown escapes: reason text."""
    with pytest.raises(FrameError) as caught:
        unpack_text(payload)
    assert caught.value.reason == "text"


@given(st.dictionaries(st.integers(0, 2**64 - 1), _TEXT))
def test_names_are_read_back(names: dict[int, str]) -> None:
    """Pointers and texts of any length come back."""
    assert dict(unpack_names(pack_names(names))) == names


def test_names_that_are_no_utf8_are_replaced() -> None:
    """A kernel name is a C string; a byte that is no UTF-8 costs itself alone."""
    assert list(unpack_names(struct.pack("<QI", 5, 3) + b"a\xffb")) == [(5, "a\ufffdb")]


@given(st.dictionaries(st.integers(0, 2**64 - 1), _TEXT, min_size=1, max_size=4), st.data())
def test_names_that_are_cut_are_refused(names: dict[int, str], data: st.DataObject) -> None:
    """A payload that ends inside an entry, wherever, is refused: reason names."""
    whole = pack_names(names)
    ends = {len(pack_names(dict(list(names.items())[:count]))) for count in range(len(names) + 1)}
    cut = data.draw(st.sampled_from([at for at in range(len(whole)) if at not in ends]))
    with pytest.raises(FrameError) as caught:
        list(unpack_names(whole[:cut]))
    assert caught.value.reason == "names"


@given(st.builds(Clock, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1)))
def test_a_clock_reading_is_read_back(clock: Clock) -> None:
    """20 bytes: CUPTI's time, Unix time, uncertainty."""
    payload = pack_clock(clock)
    assert payload == struct.pack("<qqI", *clock)
    assert unpack_clock(payload) == clock


@pytest.mark.parametrize("length", [0, 19, 21])
def test_a_clock_reading_of_another_length_is_refused(length: int) -> None:
    """Reason clock."""
    with pytest.raises(FrameError) as caught:
        unpack_clock(bytes(length))
    assert caught.value.reason == "clock"


def test_stamps_are_read_field_by_field() -> None:
    """32 bytes each: thread, name, time, correlation id, +1 or -1."""
    payload = struct.pack("<QQqIi", 7, 8, -9, 10, 1) + struct.pack("<QQqIi", 2**64 - 1, 0, 9, 2**32 - 1, -1)
    assert STAMP.itemsize == 32
    assert unpack_stamps(payload).tolist() == [(7, 8, -9, 10, 1), (2**64 - 1, 0, 9, 2**32 - 1, -1)]
    assert len(unpack_stamps(b"")) == 0


@pytest.mark.parametrize("length", [1, 31, 33])
def test_stamps_that_are_cut_are_refused(length: int) -> None:
    """Reason ranges."""
    with pytest.raises(FrameError) as caught:
        unpack_stamps(bytes(length))
    assert caught.value.reason == "ranges"


_READERS: dict[str, tuple[Callable[[bytes], object], type]] = {
    "header": (lambda payload: unpack_header(payload[: HEADER.size].ljust(HEADER.size, b"\0")), Header),
    "text": (unpack_text, dict),
    "names": (lambda payload: dict(unpack_names(payload)), dict),
    "clock": (unpack_clock, Clock),
    "stamps": (unpack_stamps, np.ndarray),
}


@pytest.mark.parametrize("what", _READERS)
@given(payload=st.one_of(st.binary(min_size=16, max_size=16), st.binary(max_size=300)))
def test_random_bytes_are_read_or_refused(what: str, payload: bytes) -> None:
    """Whatever bytes come, the readers return a value of their kind or raise FrameError with a reason."""
    read, kind = _READERS[what]
    try:
        found = read(payload)
    except FrameError as refused:
        assert refused.reason  # noqa: PT017  # either outcome is right
    else:
        assert isinstance(found, kind)
