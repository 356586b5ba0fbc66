"""The jobs in one process over a broker: the same stages as on a cluster, state and offsets in one file.

A kill at any moment sets it back to its last commit, input position and state together; what it had sent since is sent
again, which the readers of its topics expect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from spanlite.contract import catalogue
from spanlite.contract.errors import TransportError
from spanlite.pipeline.archivestage import ArchiveStage, Write
from spanlite.pipeline.counts import ArchiveCounts, Samples
from spanlite.pipeline.foldstage import Dead, FoldStage, Late, Piece
from spanlite.pipeline.idleness import Idleness
from spanlite.pipeline.kept import KeptLog, KeptState, KeptTable, KeptValue
from spanlite.pipeline.routing import producer_of
from spanlite.pipeline.totalstage import TotalStage
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.clock import Clock
from spanlite.transport.ports import Consumer, Producer, Record

_POLL = 64
_FLUSH_S = 30.0


class Topics(NamedTuple):
    """Where the results go."""

    spans: str
    points: str
    late: str
    dead: str


class Cadence(NamedTuple):
    """How often what is due is done, ns.

    Attributes:
        emit: a series is told at most once in this time.
        commit: state and offsets become durable; what a kill costs in work done again.
        archive: a producer's spans wait for so long at most.
    """

    emit: int = 10**9
    commit: int = 2 * 10**9
    archive: int = 60 * 10**9


class DurablePipeline:
    """Metrics and, where `write` is given, the archive; one thread calls it."""

    def __init__(
        self,
        state: KeptState,
        consumer: Consumer,
        producer: Producer,
        topics: Topics,
        *,
        policy: WindowPolicy,
        clock: Clock,
        top_k: int,
        write: Write | None = None,
        cadence: Cadence | None = None,
    ) -> None:
        """Args: consumer: reads from `state.positions` on, and is never asked to commit."""
        self._state = state
        self._consumer = consumer
        self._producer = producer
        self._topics = topics
        self._clock = clock
        self._policy = policy
        self._cadence = cadence or Cadence()
        epoch = int(state.fact("epoch", str(clock.unix_ns())))
        self._fold = FoldStage(policy, KeptValue(state, "fold.progress"), KeptLog(state, "fold.pending"))
        self._total = TotalStage(
            policy.width_ns, top_k, epoch, KeptLog(state, "total.waiting"), KeptTable(state, "total.series")
        )
        self._archive = (
            ArchiveStage(write, KeptValue(state, "archive.progress"), KeptLog(state, "archive.buffer"))
            if write
            else None
        )
        now = clock.monotonic_ns()
        # Whoever has state of the life before may have something that waits.
        self._idleness: Idleness[str] = Idleness(policy.idle_ns)
        for key in state.keys("fold.progress"):
            self._idleness.remembered(key, now)
        self._buffered = dict.fromkeys(state.keys("archive.buffer"), now)
        self._dirty = set(state.keys("total.waiting"))
        self._offsets: dict[int, int] = {}
        self._emitted = self._committed = self._round_ended = now
        self._sent: Counter[str] = Counter()
        self._undelivered: Counter[str] = Counter()

    def run_once(self, timeout_s: float) -> int:
        """Reads what has come within the time, works it off, and does what is due; the number of records read.

        Raises:
            SpanliteError: the input, an output, the archive or the state's file has failed for good; whoever starts it
                again goes on from the last commit.
        """
        records = self._consumer.poll(_POLL, timeout_s)
        polled = self._clock.monotonic_ns()
        self._idleness.came_round(self._round_ended + round(timeout_s * 1e9), polled)
        if len(records) == _POLL:
            self._idleness.left_waiting(polled)
        for record in records:
            self._take(record)
        for key in self._idleness.idle(polled):
            self._close(key)
        now = self._clock.monotonic_ns()
        self._write_old(now - self._cadence.archive)
        if now - self._emitted >= self._cadence.emit:
            self._emit()
            self._emitted = now
        if now - self._committed >= self._cadence.commit:
            self.commit()
        self._round_ended = self._clock.monotonic_ns()
        return len(records)

    def commit(self) -> None:
        """Makes what was done durable; all that was sent is delivered first.

        Raises:
            TransportError: a result could not be delivered.
        """
        open_now = self._producer.flush(_FLUSH_S)
        if open_now or self._undelivered:
            told = ", ".join(f"{count} {reason}" for reason, count in self._undelivered.items())
            raise TransportError(
                f"results could not be delivered ({open_now} without an answer; {told or 'no reason told'}); see that "
                "the topics exist (spanlite topics check) and the brokers answer, then start again"
            )
        self._state.set_positions(self._topics.spans, self._offsets)
        self._state.commit()
        self._committed = self._clock.monotonic_ns()

    def finish(self, *, close_windows: bool) -> None:
        """Before the end: commits, and if told to, closes all windows and writes all that waits.

        Args:
            close_windows: True when the input has ended; False to go on later from where it stands.

        Raises:
            SpanliteError: as `run_once`.
        """
        if close_windows:
            for key in list(self._idleness.keys):
                self._close(key)
            self._write_old(self._clock.monotonic_ns())
        self._emit()
        self.commit()

    def counters(self) -> Samples:
        """Own metrics since the start, for any thread; see EmbeddedPipeline."""
        archive = self._archive.counts if self._archive else ArchiveCounts()
        samples = self._fold.counts.samples()
        samples[catalogue.PIPELINE_SEQUENCES_GIVEN_UP.name].append(({"stage": "archive"}, archive.sequences_given_up))
        return {
            **samples,
            catalogue.PIPELINE_SPANS_ARCHIVED.name: [({}, archive.written)],
            catalogue.PIPELINE_POINTS_EMITTED.name: [({}, self._sent[self._topics.points])],
        }

    def _take(self, record: Record) -> None:
        self._offsets[record.partition] = record.offset + 1
        producer = producer_of(record.value)
        key = self._state.key = producer.hex()
        age = self._clock.unix_ns() - record.timestamp_ms * 10**6 if record.timestamp_ms > 0 else None
        self._idleness.heard(key, self._clock.monotonic_ns(), age)
        self._hand_on(self._fold.take(producer, record.value))
        self._state.key = key
        if self._archive and self._archive.take(producer, record.value):
            self._buffered.setdefault(key, self._clock.monotonic_ns())
        else:
            self._buffered.pop(key, None)

    def _close(self, key: str) -> None:
        self._idleness.give_up(key)
        self._state.key = key
        self._hand_on(self._fold.drain(bytes.fromhex(key)))
        self._fold.release(bytes.fromhex(key))

    def _write_old(self, before: int) -> None:
        for key in [key for key, at in self._buffered.items() if at <= before]:
            del self._buffered[key]
            if self._archive:
                self._state.key = key
                self._archive.flush(bytes.fromhex(key))
                if key not in self._idleness.keys:
                    self._archive.release(bytes.fromhex(key))

    def _emit(self) -> None:
        for gpu in self._dirty:
            self._state.key = gpu
            for update in self._total.emit(gpu):
                self._send(self._topics.points, update.key, update.point)
        self._dirty.clear()

    def _hand_on(self, outputs: Iterable[Piece | Late | Dead]) -> None:
        key = self._state.key
        for output in outputs:
            if isinstance(output, Piece):
                self._state.key = output.gpu_uuid
                self._total.take(output.partial)
                self._dirty.add(output.gpu_uuid)
                self._state.key = key
            elif isinstance(output, Late):
                self._send(self._topics.late, output.key, output.point)
            else:
                self._send(self._topics.dead, output.reason.encode(), output.message)

    def _send(self, topic: str, key: bytes, value: bytes) -> None:
        self._sent[topic] += 1
        self._producer.send(topic, key, value, self._clock.unix_ns() // 10**6, self._delivered)

    def _delivered(self, problem: str | None) -> None:
        if problem is not None:
            self._undelivered[problem] += 1


def run_until(pipeline: DurablePipeline, stopped: Callable[[], bool], timeout_s: float = 0.2) -> None:
    """Runs until told to stop.

    Raises:
        SpanliteError: see DurablePipeline.run_once.
    """
    while not stopped():
        pipeline.run_once(timeout_s)
