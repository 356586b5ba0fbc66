"""The twin's parts by themselves, against the agent's own reading and against slower, plainer versions."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.agent import frames
from spanlite.agent.collector import wire
from spanlite.agent.collector.losses import Losses
from spanlite.agent.collector.names import MADE_UP, Names
from spanlite.agent.collector.options import Options
from spanlite.agent.collector.records import Walker
from spanlite.agent.collector.stamps import Stamps

SIZES = {1: 112, 2: 104, 3: 248, 10: 248, 12: 56}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def test_frame_types_are_the_agent_s() -> None:
    """Two lists of the same numbers."""
    for name in ("HELLO", "NAMES", "BUFFER", "RANGES", "CLOCK", "STATS", "BYE", "KERNEL_SOURCE"):
        assert getattr(wire, name) == frames.Frame[name]


@given(st.integers(0, 2**33), TEXT)
def test_a_frame_is_read_by_the_agent(sequence: int, text: str) -> None:
    """Header, text, names and clock are bytes that the agent's own functions give and read."""
    payload = wire.text({"key": text})
    assert payload == frames.pack_text({"key": text})
    assert wire.header(wire.STATS, len(payload), sequence) + payload == frames.pack_frame(
        frames.Frame.STATS, payload, sequence
    )
    assert list(frames.unpack_names(wire.names([(7, text.encode()), (1 << 63, b"")]))) == [(7, text), (1 << 63, "")]
    assert frames.unpack_clock(wire.clock(-1, 2, 3)) == frames.Clock(-1, 2, 3)


class Told:
    """CUPTI, which knows how long records are."""

    def record_after(self, buffer: int, valid: int, record: int) -> tuple[int, int]:
        size = SIZES.get(self.memory[record - buffer], 0)
        if not size:
            return 21, record
        return (0, record + size) if record + size < buffer + valid else (12, record)

    def __init__(self, memory: bytes) -> None:
        self.memory = memory


def _record(kind: int, name: int) -> bytes:
    record = bytearray(SIZES[kind])
    struct.pack_into("<I", record, 0, kind)
    if kind in (3, 10):
        struct.pack_into("<Q", record, 104, name)
    return bytes(record)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(SIZES)), st.integers(1, 500), st.integers(0, 3)), max_size=12),
    st.sampled_from([b"", b"\xff" * 8, b"\x00" * 16, b"\xff" * 3]),
)
def test_every_record_is_counted_and_every_name_found(runs: list[tuple[int, int, int]], rest: bytes) -> None:
    """Runs of any length of any kinds, rubbish behind them: the same as record by record."""
    records = b"".join(_record(kind, name + at % 3) for kind, count, name in runs for at in range(count))
    memory = records + rest
    found = Walker(Told(memory)).walk(memoryview(memory), 4096)
    assert found.whole == len(records)
    assert found.spans == sum(count for kind, count, _ in runs if kind != 12)
    assert found.names == {
        name + at % 3 for kind, count, name in runs if kind in (3, 10) for at in range(min(count, 3))
    }


def test_a_record_that_the_buffer_cuts_is_not_whole() -> None:
    """The kind's size is known, its last bytes are missing: it is left out."""
    memory = _record(10, 5) * 3
    walker = Walker(Told(memory))
    assert walker.walk(memoryview(memory), 4096).spans == 3
    assert walker.walk(memoryview(memory)[:-8], 4096) == (2 * 248, 2, {5})


def test_names_are_told_again_only_when_they_changed() -> None:
    """By pointer and content; texts without a pointer get one that no address equals."""
    names = Names()
    for pointer, text in ((8, b"a"), (8, b"a"), (16, b"a"), (8, b"b"), (8, b"a")):
        names.note(pointer, text)
    assert names.log == [(8, b"a"), (16, b"a"), (8, b"b"), (8, b"a")]
    assert names.made_up(b"x") == names.made_up(b"x") == MADE_UP
    assert names.made_up(b"y") == MADE_UP | 1


def test_losses_are_given_once_and_may_be_given_back() -> None:
    """What a STATS frame could not tell is told by the next."""
    losses = Losses()
    losses.add("cupti", 3)
    losses.add("cupti", 0)
    losses.add("no_agent", 1)
    assert losses.take() == {"cupti": 3, "no_agent": 1}
    assert losses.take() == {}
    losses.add("cupti", 3)
    losses.add("cupti", 2)
    assert losses.take() == {"cupti": 5}


def test_stamps_are_those_of_the_protocol() -> None:
    """Thread, name, time, correlation, direction: as the agent's dtype reads them."""
    ids = iter((11, 12))

    def draw() -> bool:
        stamps.saw_call(next(ids))
        return True

    stamps = Stamps(Losses(), draw, lambda: 99)
    assert (stamps.push("a"), stamps.pop(), stamps.pop()) == (0, 0, 0)
    raw = np.frombuffer(stamps.take(10), frames.STAMP)
    assert raw["name"].tolist() == [MADE_UP, 0]
    assert raw["time_ns"].tolist() == [99, 99]
    assert raw["correlation"].tolist() == [11, 12]
    assert raw["delta"].tolist() == [1, -1]
    assert stamps.take(10) == b""


@pytest.mark.parametrize(
    ("said", "expected"),
    [("", 8192), ("64", 64), ("1", 16), ("99999999", 32768), ("-5", 8192), ("6e4", 8192), ("６４", 8192)],
)
def test_a_number_is_held_to_its_bounds(said: str, expected: int) -> None:
    """Text that is none is as good as absent."""
    assert Options.of({"SPANLITE_BUFFER_KIB": said}).buffer_bytes == expected * 1024


def test_sockets_are_looked_for_in_order() -> None:
    """The one that is named and no other, or the two that the page states."""
    assert Options.of({"SPANLITE_SOCKET": "/a", "XDG_RUNTIME_DIR": "/r"}).sockets == ("/a",)
    assert Options.of({"XDG_RUNTIME_DIR": "/r"}).sockets == ("/run/spanlite/agent.sock", "/r/spanlite/agent.sock")
    assert Options.of({}).sockets == ("/run/spanlite/agent.sock",)
