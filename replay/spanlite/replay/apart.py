"""Reading and encoding in a process of its own: whoever waits for due times shares no interpreter with it.

A thread of the same process would hold the interpreter for milliseconds at a time, and the pacer would be as late. The
other process gets the plan as it is; items come back one by one through a pipe, whose end on either side ends both.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import struct
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection

from spanlite.contract import errors
from spanlite.contract.errors import ReplayError, SpanliteError
from spanlite.replay.deliveries import Ready
from spanlite.replay.ports import Item, Position
from spanlite.replay.prepare import Replay
from spanlite.runtime.allocator import keep_freed

_ITEM, _END, _ERROR = b"i", b"e", b"x"
_HEAD = struct.Struct("<c10qq16sQ32s?I")
_PATIENCE_S = 10.0
_NICE = 5
"""Reading has what pacing and sending leave: a third of what an equal would get, where a core is short."""


class ItemsApart:
    """The items of a replay from one on, made by another process; a context to iterate over once.

    Args:
        replay: what; it is pickled.
        begin: where to begin.
        names: sequences given before, by producer in hex.
    """

    def __init__(self, replay: Replay, begin: Position, names: Mapping[str, int]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._ours, theirs = spawn.Pipe(duplex=False)
        self._theirs: Connection | None = theirs
        arguments = (theirs, replay, begin, dict(names))
        self._process = spawn.Process(target=_make, args=arguments, name="spanlite-replay-reader", daemon=True)

    def __enter__(self) -> Iterator[Ready]:
        self._process.start()
        if self._theirs is not None:
            self._theirs.close()  # so that the pipe ends when the other process does
        return self._items()

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._process.join(_PATIENCE_S)  # its next item finds nobody
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _items(self) -> Iterator[Ready]:
        while True:
            try:
                data = self._ours.recv_bytes()
            except EOFError:
                self._process.join(_PATIENCE_S)
                raise ReplayError(
                    f"the process that reads the archive ended ({self._process.exitcode}); if it was killed for its "
                    "memory, give the replay more"
                ) from None
            if data[:1] == _END:
                return
            if data[:1] == _ERROR:
                name, _, text = data[1:].decode().partition("\0")
                raise getattr(errors, name, ReplayError)(text)
            yield _unpacked(data)


def by_turn(items: Iterator[Ready]) -> Callable[[int], Iterator[Ready]]:
    """The items turn by turn, as `Replay.turns` gives them."""
    held: list[Ready] = []

    def turn(loop: int) -> Iterator[Ready]:
        while (ready := held.pop() if held else next(items, None)) is not None:
            if ready.item.position.loop != loop:
                held.append(ready)
                return
            yield ready

    return turn


def _make(out: Connection, replay: Replay, begin: Position, names: Mapping[str, int]) -> None:
    """Main function of the other process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the one that started it says when it is over
    os.nice(_NICE)
    keep_freed()
    try:
        for ready in replay.ready(begin, names):
            out.send_bytes(_packed(ready))
        out.send_bytes(_END)
    except SpanliteError as error:
        out.send_bytes(_ERROR + f"{type(error).__name__}\0{error}".encode())
    except BrokenPipeError:
        return


def _packed(ready: Ready) -> bytes:
    item, then = ready.item, ready.following
    at = item.position
    numbers = (at.loop, at.batch, at.part, then.loop, then.batch, then.part)
    times = (item.arrival_ns, item.start_ns, item.first_ns, item.last_ns)
    head = _HEAD.pack(
        _ITEM, *numbers, *times, item.spans, item.producer, item.sequence, ready.digest, ready.counted, len(item.key)
    )
    return b"".join((head, item.key, ready.payload))


def _unpacked(data: bytes) -> Ready:
    _, *numbers, arrival, start, first, last, spans, producer, sequence, digest, counted, key = _HEAD.unpack_from(data)
    payload_at = _HEAD.size + key
    item = Item(
        position=Position(*numbers[:3]),
        producer=producer,
        sequence=sequence,
        key=data[_HEAD.size : payload_at],
        spans=spans,
        arrival_ns=arrival,
        start_ns=start,
        first_ns=first,
        last_ns=last,
    )
    return Ready(item, data[payload_at:], digest, Position(*numbers[3:]), counted)
