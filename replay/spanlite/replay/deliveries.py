"""What is on its way: items that were handed on, and what became of them, told in the order of emission."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from dataclasses import dataclass, replace

from spanlite.contract.errors import TransportError
from spanlite.replay.checkpoint import Account
from spanlite.replay.moments import Moment
from spanlite.replay.ports import Item, Position, Sink

LOST = ("too_large", "rejected")
"""Reasons that concern one value alone: it is counted as lost, and the replay goes on."""
LATE = "late"
"""Left out, since its time had passed."""
DURATION = "duration"
"""Due before the end that was set, and not emitted by then."""
AGAIN = ("rejected", "neighbour")
"""Reasons to try a value once more: it may have been refused for what was sent along with it."""
_WAIT_S = 0.1


def digest_of(payload: bytes) -> bytes:
    """Digest of one value."""
    return hashlib.blake2b(payload, digest_size=32).digest()


def chained(digest: str, own: bytes) -> str:
    """Digest of all values up to one: blake2b of the digest before it and its own. It can be kept and gone on from."""
    return hashlib.blake2b(bytes.fromhex(digest) + own, digest_size=32).hexdigest()


@dataclass(frozen=True, slots=True)
class Ready:
    """An item that can be handed on.

    Attributes:
        payload: the batch as a SpanBatch message.
        digest: of the payload, made beforehand: who waits for due times has no time for it.
        following: where the item after it stands.
        counted: whether its name was counted by `Names`.
    """

    item: Item
    payload: bytes
    digest: bytes
    following: Position
    counted: bool


@dataclass(slots=True)
class _Flight:
    """One item that was handed on."""

    ready: Ready
    moment: Moment | None = None
    tries: int = 0
    told: bool = False
    reason: str | None = None


class Deliveries:
    """Items on their way to a sink, and the account of those before them.

    Acknowledgements may come on any thread and in any order; the account grows by the first item in flight only.
    """

    def __init__(self, sink: Sink, account: Account, *, most: int) -> None:
        """At most `most` items are handed on and not acknowledged."""
        self.account = account
        self._sink = sink
        self._most = most
        self._changed = threading.Condition()
        self._flying: deque[_Flight] = deque()
        self._open = 0

    def send(self, ready: Ready, moment: Moment | None = None) -> None:
        """Hands an item on, when there is room for it; tried again, it keeps its moment.

        Raises:
            SpanliteError: an item was not stored, for a reason that the next ones would meet too.
        """
        while not self._room():
            self.settle()
        flight = _Flight(ready, moment)
        with self._changed:
            self._flying.append(flight)
        self._hand_on(flight)

    def give_up(self, ready: Ready, reason: str) -> None:
        """Enters an item as lost that was not handed on."""
        with self._changed:
            self._flying.append(_Flight(ready, told=True, reason=reason))

    def miss(self, spans: int, reason: str) -> None:
        """Enters spans as lost that were never read; to be called when all else is entered."""
        lost = self.account.lost
        self.account = replace(self.account, lost={**lost, reason: lost.get(reason, 0) + spans})

    def drain(self, timeout_s: float) -> bool:
        """Waits for acknowledgements; whether all have come.

        Raises:
            SpanliteError: as `send`.
        """
        left = self._sink.flush(timeout_s)
        self.settle()
        return not left and not self._flying

    def settle(self) -> Account:
        """Enters what has been told of; returns the account.

        Raises:
            TransportError: an item was not stored, for a reason that the next ones would meet too.
        """
        while True:
            with self._changed:
                if not self._flying or not self._flying[0].told:
                    return self.account
                flight = self._flying[0]
            if flight.reason in AGAIN and not flight.tries:
                flight.tries, flight.told = 1, False
                self._hand_on(flight)
                continue
            self._enter(flight)
            with self._changed:
                self._flying.popleft()

    def _room(self) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._open < self._most, _WAIT_S)

    def _hand_on(self, flight: _Flight) -> None:
        with self._changed:
            self._open += 1

        def told(reason: str | None) -> None:
            with self._changed:
                flight.told, flight.reason = True, reason
                self._open -= 1
                self._changed.notify_all()

        self._sink.send(flight.ready.item, flight.ready.payload, told, flight.moment)

    def _enter(self, flight: _Flight) -> None:
        account, ready, reason = self.account, flight.ready, flight.reason
        item = ready.item
        names = account.names
        if ready.counted:
            names = {**names, item.producer.hex(): item.sequence + 1}
        if reason is not None:
            if reason not in (*LOST, LATE, DURATION):
                raise TransportError(
                    f"a batch was not stored ({reason}) after {account.spans} spans were; put that right and go on "
                    "with --resume, if a --checkpoint was kept, or start again"
                )
            lost = {**account.lost, reason: account.lost.get(reason, 0) + item.spans}
            self.account = replace(account, next=ready.following, lost=lost, names=names)
            return
        self.account = Account(
            next=ready.following,
            batches=account.batches + 1,
            spans=account.spans + item.spans,
            bytes=account.bytes + len(ready.payload),
            lost=account.lost,
            first_ns=min(account.first_ns, item.first_ns) if account.batches else item.first_ns,
            last_ns=max(account.last_ns, item.last_ns) if account.batches else item.last_ns,
            digest=chained(account.digest, ready.digest),
            names=names,
        )
