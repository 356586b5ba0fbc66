"""The open-loop client against a real service: nobody waits, everything is counted once, by what became of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import trustme

from spanlite.contract.errors import UsageError
from spanlite.replay.http.calling import Calling
from spanlite.replay.http.calls import ATTEMPTS
from spanlite.replay.http.client import Client
from spanlite.replay.http.outcomes import ERRORS, Outcomes, Rows
from spanlite.replay.http.requests import Request, parse_url
from spanlite.runtime.clock import SystemClock
from tests.replay.http.service import OK, Seen, Service, at_once, status

CLOCK = SystemClock()
FINE = frozenset(range(200, 300))


def requests(url: str, count: int, method: str = "POST") -> list[Request]:
    """Requests whose body is their number."""
    place = parse_url(url)
    made = []
    for number in range(count):
        body = f"{number}".encode()
        head = f"{method} {place.target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        made.append(Request(number.to_bytes(16, "big"), 0, place.origin, head + body, len(body)))
    return made


def played(calling: Calling, sent: list[Request], until: Callable[[Client], object] = lambda _: None) -> Outcomes:
    """Sends them all at once, `until` something has happened, and waits for their ends; the rows are in `rows`."""
    outcomes = Outcomes(FINE, keep=ROWS.append)
    ROWS.clear()
    with Client(calling, outcomes, CLOCK) as client:
        for request in sent:
            client.send(request, CLOCK.monotonic_ns())
        until(client)
        deadline_ns = CLOCK.monotonic_ns() + 30 * 10**9
        while not client.drained(0.5):
            assert CLOCK.monotonic_ns() < deadline_ns
    assert client.broken is None
    assert outcomes.count == client.handed == len(sent)
    return outcomes


ROWS: list[Rows] = []


def test_a_stall_moves_no_sending_and_shows_in_every_latency() -> None:
    """All are sent while the first is not answered; each latency from due reaches to the end of the stall at least."""
    count = 60
    ended: list[int] = []

    async def stalled(seen: Seen) -> bytes | None:
        while len(service.seen) < count:  # for ever, if anybody waited for an answer before sending on
            await asyncio.sleep(0.005)
        if not ended:
            ended.append(CLOCK.monotonic_ns())
        return OK

    with Service(stalled) as service:
        outcomes = played(Calling(connections=count), requests(service.url, count))
    (rows,) = ROWS
    assert outcomes.expected == count
    assert len(rows) == count
    assert (rows.sent_ns <= ended[0]).all()
    assert (rows.done_ns >= ended[0]).all()
    assert outcomes.latency.max_ns == (rows.done_ns - rows.due_ns).max()
    assert outcomes.latency.max_ns >= ended[0] - rows.due_ns.min()
    assert (rows.due_ns <= rows.sent_ns).all()
    assert (rows.sent_ns <= rows.first_byte_ns).all()
    arrived = {int(seen.body): seen.at_ns for seen in service.seen}
    for trace, sent_ns in zip(rows.trace, rows.sent_ns.tolist(), strict=True):
        number = int.from_bytes(trace.tobytes(), "big")
        assert sent_ns <= arrived[number] <= ended[0]


def test_what_finds_the_queue_full_is_counted() -> None:
    """One connection and room for two: the first three of ten are sent in order, seven are lost, none is silent."""
    gate = asyncio.Event()

    async def held(_seen: Seen) -> bytes | None:
        await gate.wait()
        return OK

    def opened(client: Client) -> None:
        assert not client.drained(0.2)  # all ten have been looked at
        state = client.state
        assert (state.open, state.waiting, state.most_waiting, state.waited) == (1, 2, 2, 2)
        service.call(gate.set)

    with Service(held) as service:
        outcomes = played(Calling(connections=1, queue=2), requests(service.url, 10), opened)
    assert outcomes.errors == {"queue_full": 7}
    assert outcomes.statuses == {200: 3}
    assert [seen.body for seen in service.seen] == [b"0", b"1", b"2"]
    assert dict(outcomes.lost) == {"queue_full": 7}
    assert outcomes.unexpected == 0


def test_no_more_connections_are_open_than_allowed() -> None:
    """With three connections the service never holds more than three requests; they are used again."""
    held: list[int] = [0, 0]

    async def counted(_seen: Seen) -> bytes | None:
        held[0] += 1
        held[1] = max(held)
        await asyncio.sleep(0.001)
        held[0] -= 1
        return OK

    with Service(counted) as service:
        outcomes = played(Calling(connections=3), requests(service.url, 200))
    assert outcomes.statuses == {200: 200}
    assert held == [0, 3]
    assert service.most_open <= 3
    assert service.connections <= 3


def test_places_share_the_connections() -> None:
    """Free connections to one service make room for those to another; each request comes to its own."""
    with Service() as one, Service() as other:
        both = [each for pair in zip(requests(one.url, 20), requests(other.url, 20), strict=True) for each in pair]
        outcomes = played(Calling(connections=1), both)
    assert outcomes.statuses == {200: 40}
    assert [seen.body for seen in one.seen] == [seen.body for seen in other.seen] == [b"%d" % at for at in range(20)]
    assert one.connections == other.connections == 20


def test_a_connection_that_was_closed_is_not_used_again() -> None:
    """A service that closes after each answer, or says more than was asked, has a new connection for each request."""
    for answer in (status(200, "Connection: close\r\n"), OK + OK, b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"):

        async def closing(_seen: Seen, answer: bytes = answer) -> bytes | None:
            return answer

        with Service(closing) as service:
            outcomes = played(Calling(connections=1), requests(service.url, 5))
        assert outcomes.statuses == {200: 5}
        assert service.connections == 5


def test_every_end_is_counted_by_its_kind() -> None:
    """Statuses, a close before and in an answer, no HTTP, a timeout, answers of all forms: each is one of its kind."""
    answers: list[bytes | None] = [
        OK,
        status(204)[: -len("Content-Length: 2\r\n\r\nno")] + b"Content-Length: 0\r\n\r\n",
        status(404),
        status(503, "Connection: close\r\n"),
        None,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf",
        b"SSH-2.0-OpenSSH Length\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Length: 0\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 x\r\nContent-Length: 1\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\nX-Length: 0\r\n\r\n",
    ]

    async def each(seen: Seen) -> bytes | None:
        number = int(seen.body)
        if number == len(answers):
            await asyncio.sleep(60)
        return answers[number]

    with Service(each) as service:
        outcomes = played(Calling(timeout_s=1.0), requests(service.url, len(answers) + 1))
    (rows,) = ROWS
    ends = {
        int.from_bytes(trace.tobytes(), "big"): (status, ERRORS[error], received)
        for trace, status, error, received in zip(
            rows.trace, rows.status.tolist(), rows.error.tolist(), rows.response_bytes.tolist(), strict=True
        )
    }
    assert ends == {
        0: (200, "", 2),
        1: (204, "", 0),
        2: (404, "", 2),
        3: (503, "", 2),
        4: (0, "reset", 0),
        5: (200, "truncated", 4),
        6: (0, "protocol", 0),
        7: (200, "", 5),
        8: (200, "", 13),
        9: (201, "", 1),
        10: (200, "", 2),
        11: (0, "protocol", 0),
        12: (0, "timeout", 0),
    }
    assert outcomes.expected == 6
    assert outcomes.statuses == {200: 4, 201: 1, 204: 1, 404: 1, 503: 1}
    assert outcomes.errors == {"reset": 1, "truncated": 1, "protocol": 2, "timeout": 1}
    assert outcomes.latency.count == 9  # the timeout is as late as it is
    assert outcomes.latency.max_ns >= 1_000_000_000


def test_a_head_alone_is_the_answer_to_head() -> None:
    """Nobody waits for the body that the head of a HEAD response speaks of."""

    async def headed(_seen: Seen) -> bytes | None:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"

    with Service(headed) as service:
        outcomes = played(Calling(connections=1, bodiless=True), requests(service.url, 3, "HEAD"))
    assert outcomes.statuses == {200: 3}


def test_an_endless_head_is_given_up() -> None:
    """A response whose head has no end is no HTTP; it does not fill the memory."""

    async def endless(_seen: Seen) -> bytes | None:
        return b"HTTP/1.1 200 OK\r\nX-Length: " + b"x" * (1 << 20)

    with Service(endless) as service:
        outcomes = played(Calling(), requests(service.url, 1))
    assert outcomes.errors == {"protocol": 1}


def free_port() -> int:
    """A port of loopback where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as stream:
        port: int = stream.getsockname()[1]
        return port


def test_nobody_there_is_noticed_after_the_first_attempts() -> None:
    """A hundred refusals and no connection mean that it is gone, unless it is to go on; a name that is none, too."""
    url = f"http://127.0.0.1:{free_port()}/"
    gone: list[bool] = []
    for keep_going, count in ((False, ATTEMPTS), (False, ATTEMPTS - 1), (True, 2 * ATTEMPTS)):
        calling = Calling(keep_going=keep_going)
        outcomes = Outcomes(FINE)
        with Client(calling, outcomes, CLOCK) as client:
            for request in requests(url, count):
                client.send(request, CLOCK.monotonic_ns())
            while not client.drained(0.5):
                pass
            gone.append(client.gone)
        assert outcomes.errors == {"refused": count}
    assert gone == [True, False, False]


def test_certificates_are_verified(tmp_path: Path) -> None:
    """A service with a certificate of a foreign authority is refused, with --ca it is not; its name counts."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with Service(at_once, tls=context) as service:
        trusted = played(Calling(ca=tmp_path / "ca.pem", connections=2), requests(service.url, 6))
        foreign = played(Calling(), requests(service.url, 2))
        other = played(Calling(ca=tmp_path / "ca.pem"), requests(service.url.replace("127.0.0.1", "localhost"), 1))
    assert trusted.statuses == {200: 6}
    assert foreign.errors == {"tls": 2}
    assert other.errors == {"tls": 1}
    with pytest.raises(UsageError, match="--ca"):
        Client(Calling(ca=tmp_path / "none.pem"), Outcomes(FINE), CLOCK)


def test_giving_up_ends_what_waits_first_and_what_is_open_then() -> None:
    """Told to stop, requests in the queue end as stopped at once, those that are open when patience is over."""

    async def never(_seen: Seen) -> bytes | None:
        await asyncio.sleep(60)
        return OK

    outcomes = Outcomes(FINE, keep=ROWS.append)
    ROWS.clear()
    with Service(never) as service, Client(Calling(connections=2), outcomes, CLOCK) as client:
        for request in requests(service.url, 5):
            client.send(request, CLOCK.monotonic_ns())
        assert not client.drained(0.1)
        client.give_up(open_too=False)
        assert not client.drained(0.1)
        assert (client.state.open, client.state.waiting) == (2, 0)
        client.give_up(open_too=True)
        assert client.drained(10)
    assert outcomes.errors == {"stopped": 5}
    assert np.count_nonzero(ROWS[0].sent_ns) == 2


def test_an_error_of_our_own_ends_it() -> None:
    """Results that cannot be written are not swallowed in the client's thread."""

    def full(_rows: Rows) -> None:
        raise OSError(28, "No space left on device")

    outcomes = Outcomes(FINE, keep=full, chunk_rows=2)
    with Service() as service, Client(Calling(), outcomes, CLOCK) as client:
        for request in requests(service.url, 5):
            client.send(request, CLOCK.monotonic_ns())
        while client.broken is None:
            client.drained(0.05)
    assert isinstance(client.broken, OSError)
