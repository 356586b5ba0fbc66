"""Frames between the process that paces and the one that sends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spanlite.replay.http.frames import Frame, Reader, Told, Writer
from spanlite.replay.http.requests import Origin, Request

_INT64 = st.integers(-(2**63), 2**63 - 1)
_ORIGINS = st.builds(Origin, st.booleans(), st.text(max_size=5), st.integers(1, 65535))
_REQUESTS = st.builds(
    Request,
    trace=st.binary(min_size=16, max_size=16),
    due_ns=st.just(0),
    origin=_ORIGINS,
    payload=st.binary(max_size=200),
    body_bytes=st.integers(0, 2**32 - 1),
)
_OTHERS = st.sampled_from([Frame.LOOK, Frame.GIVE_UP, Frame.GIVE_UP_ALL, Frame.END])
_SAID = st.lists(st.tuples(st.one_of(_REQUESTS, _OTHERS), _INT64), max_size=12)


@given(said=_SAID, cuts=st.lists(st.integers(1, 90), min_size=1, max_size=30))
def test_frames_come_back_in_whatever_pieces(said: list[tuple[Request | Frame, int]], cuts: list[int]) -> None:
    """Requests to many places, with any bytes, and commands between them are what they were, in order, once each."""
    writer, reader = Writer(), Reader()
    data = b"".join(
        writer.request(one, number) if isinstance(one, Request) else writer.told(one, number) for one, number in said
    )
    came: list[Told] = []
    at = 0
    while at < len(data):
        size = cuts[len(came) % len(cuts)]
        came += list(reader.feed(data[at : at + size]))
        at += size
    assert [(told.request or told.frame, told.number) for told in came] == said
