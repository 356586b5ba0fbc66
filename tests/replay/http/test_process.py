"""The process that sends: halted, killed, unable to begin, left by an error."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import trustme

from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.http.calling import Calling
from spanlite.replay.http.client import Client
from spanlite.replay.http.outcomes import Outcomes
from spanlite.replay.http.requests import Request, parse_url
from tests.replay.http.service import OK, Seen, Service
from tests.replay.http.test_client import CLOCK, FINE, requests


def _child() -> int:
    """The process that sends."""
    (child,) = [one for one in multiprocessing.active_children() if one.name == "spanlite-replay-http"]
    assert child.pid is not None
    return child.pid


def test_one_that_does_not_read_holds_up_nobody() -> None:
    """While the sending process is halted, megabytes of requests are handed on at once; then each comes, in order."""
    count, outcomes = 300, Outcomes(FINE)
    place = parse_url("http://x/")
    body = b"x" * 20_000
    with Service() as service, Client(Calling(connections=1), outcomes, CLOCK) as client:
        origin = parse_url(service.url).origin
        os.kill(_child(), signal.SIGSTOP)
        for number in range(count):
            said = b"%d " % number + body
            head = f"POST {place.target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(said)}\r\n\r\n".encode()
            trace = number.to_bytes(16, "big")
            client.send(Request(trace, 0, origin, head + said, len(said)), CLOCK.monotonic_ns())
        assert not client.drained(0.1)
        os.kill(_child(), signal.SIGCONT)
        while not client.drained(0.5):
            assert client.broken is None
    assert outcomes.statuses == {200: count}
    assert [int(seen.body.split()[0]) for seen in service.seen] == list(range(count))
    assert outcomes.request_bytes == sum(len(seen.body) for seen in service.seen) > 4 * 10**6


def test_one_that_is_killed_is_told_of() -> None:
    """Its exit code, rather than requests that seem to be on their way for ever; what comes after does not fail."""
    outcomes = Outcomes(FINE)
    with Service() as service, Client(Calling(), outcomes, CLOCK) as client:
        os.kill(_child(), signal.SIGKILL)
        for request in requests(service.url, 3):
            client.send(request, CLOCK.monotonic_ns())
        assert not client.drained(30) or client.broken is not None
        client.give_up(open_too=True)
    assert isinstance(client.broken, ReplayError)
    assert "-9" in str(client.broken)
    assert outcomes.count == 0


def test_what_the_other_process_lacks_is_told_here(tmp_path: Path) -> None:
    """Certificates that are gone when it begins are the error that they would be here, and nothing waits for it."""
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(path)
    client = Client(Calling(ca=path), Outcomes(FINE), CLOCK)
    path.unlink()
    with client:
        assert client.drained(30)
    assert isinstance(client.broken, UsageError)
    assert "--ca" in str(client.broken)


def test_no_process_is_left() -> None:
    """Left by an error of whoever drives it, it ends all the same, with what is open."""

    async def never(_seen: Seen) -> bytes | None:
        await asyncio.sleep(60)
        return OK

    outcomes = Outcomes(FINE)
    pids = []

    def driven(url: str) -> None:
        with Client(Calling(), outcomes, CLOCK) as client:
            pids.append(_child())
            client.send(requests(url, 1)[0], CLOCK.monotonic_ns())
            raise ValueError("ours")

    with Service(never) as service, pytest.raises(ValueError, match="ours"):
        driven(service.url)
    assert outcomes.errors == {"stopped": 1}
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
