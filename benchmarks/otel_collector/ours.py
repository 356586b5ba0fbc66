"""Both stages of the metrics job over keyed state in memory, fed through a socket: bytes in, cumulative points out."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Sequence

from spanlite.contract.point_codec import decode_point
from spanlite.contract.points import Point
from spanlite.pipeline.foldstage import Dead, FoldStage, Late, Piece
from spanlite.pipeline.routing import producer_of
from spanlite.pipeline.totalstage import TotalStage
from spanlite.pipeline.windows import WindowPolicy
from tests.pipeline.simulator import MemoryLog, MemoryTable, MemoryValue, Store

_TOP_K = 500


class Ours:
    """As the job runs it, with its defaults; but a window's series are told as soon as it closes, which is oftenest.

    Attributes:
        points: newest cumulative point of each series by its key, encoded, as a compacted topic keeps it.
    """

    def __init__(self) -> None:
        policy = WindowPolicy()
        self._folds, self._totals = Store({}), Store({})
        progress, pending = MemoryValue(self._folds, "progress"), MemoryLog(self._folds, "pending")
        self._fold = FoldStage(policy, progress, pending)
        waiting, kept = MemoryLog(self._totals, "waiting"), MemoryTable(self._totals, "kept")
        self._total = TotalStage(policy.width_ns, _TOP_K, 1, waiting, kept)
        self._producers: set[bytes] = set()
        self.points: dict[bytes, bytes] = {}

    def take(self, message: bytes) -> None:
        """One batch."""
        producer = producer_of(message)
        self._producers.add(producer)
        self._folds.key = producer
        self._pass_on(self._fold.take(producer, message))

    def play(self, messages: Sequence[bytes]) -> None:
        """Takes messages as they come through a socket from a thread that sends them."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            sender = threading.Thread(target=_send, args=(server.getsockname(), messages), daemon=True)
            sender.start()
            connection, _ = server.accept()
            with connection, connection.makefile("rb", buffering=1 << 18) as stream:
                while head := stream.read(4):
                    self.take(stream.read(int.from_bytes(head, "little")))
            sender.join()

    def finish(self) -> None:
        """Closes every window."""
        for producer in self._producers:
            self._folds.key = producer
            self._pass_on(self._fold.drain(producer))

    def made(self) -> list[Point]:
        """The points, decoded."""
        return [decode_point(point) for point in self.points.values()]

    def _pass_on(self, outputs: Iterable[Piece | Late | Dead]) -> None:
        for output in outputs:
            assert isinstance(output, Piece), f"a batch was late or refused: {output[0]!r}"
            self._totals.key = output.gpu_uuid
            self._total.take(output.partial)
            for update in self._total.emit(output.gpu_uuid):
                self.points[update.key] = update.point


def _send(address: tuple[str, int], messages: Iterable[bytes]) -> None:
    with socket.create_connection(address) as connection:
        for message in messages:
            connection.sendall(len(message).to_bytes(4, "little") + message)
