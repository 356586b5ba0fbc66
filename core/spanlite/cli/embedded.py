"""Agent and pipeline in one process: the wiring that `demo` and `ingest` share."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from spanlite.agent.activity import decode
from spanlite.agent.counts import AgentCounts
from spanlite.agent.feeder import feed
from spanlite.agent.recording import Recording, check_counts, read_recording
from spanlite.agent.server import SPANS_TOPIC, AgentServer
from spanlite.agent.tables import KernelTable
from spanlite.contract import catalogue
from spanlite.contract.codec import encode_batch
from spanlite.contract.errors import LayoutError, RecordingError, SpanliteError
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.pipeline.embedded import DEFAULT_TOP_K, EmbeddedPipeline, Outputs
from spanlite.pipeline.windows import WindowPolicy
from spanlite.runtime.clock import Clock, SystemClock
from spanlite.transport.memory import MemoryBroker, MemoryConsumer, MemoryProducer

Source = Recording | KernelTable
Progress = Callable[[int, int], None]


def open_source(path: Path) -> Source:
    """A recording or a kernel table, read and checked as far as can be done before anything is written.

    Raises:
        RecordingError, LayoutError: what is wrong with the file, and what to do.
    """
    if path.name.endswith((".bin", ".bin.xz")):
        recording = read_recording(path)
        try:
            check_counts(recording, decode(recording.data, recording.layout()))
        except LayoutError as error:
            raise LayoutError(f"{path}: {error}", offset=error.offset) from error
        return recording
    if path.suffix == ".parquet":
        return KernelTable(path)
    if not path.exists():
        raise RecordingError(f"{path}: no such file")
    raise RecordingError(f"{path}: the name must end in .bin, .bin.xz (CUPTI buffers) or .parquet (a kernel table)")


class Embedded:
    """Agent socket, memory transport and pipeline thread, as a context.

    Leaving the context without an error drains everything and closes all windows; with one, all that is pending is
    given up.
    """

    def __init__(
        self,
        outputs: Outputs,
        *,
        policy: WindowPolicy,
        archive: ArchiveWriter | None = None,
        top_k: int = DEFAULT_TOP_K,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.agent = AgentCounts()
        self._broker = MemoryBroker()
        self._producer = MemoryProducer(self._broker)
        consumer = MemoryConsumer(self._broker, SPANS_TOPIC)
        self.pipeline = EmbeddedPipeline(consumer, outputs, policy=policy, archive=archive, top_k=top_k)
        self._folder = tempfile.TemporaryDirectory(prefix="spanlite-")
        self.socket = Path(self._folder.name) / "agent.sock"
        self._server = AgentServer(self.socket, self._producer, self.clock, self.agent)
        self._thread = threading.Thread(target=self._run, name="spanlite-pipeline", daemon=True)
        self._failure: Exception | None = None

    def __enter__(self) -> Embedded:
        self._server.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()
        self._broker.close()
        self._thread.join()
        self._folder.cleanup()
        if kind is not None:
            return
        self._raise_failure()
        self.pipeline.finish()

    def counters(self) -> Mapping[str, list[tuple[Mapping[str, str], float]]]:
        """Own metrics of both halves."""
        return {**self.agent.counters(), **self.pipeline.counters()}

    def play(self, source: Source, *, speed: float = 0.0, progress: Progress = lambda _done, _all: None) -> None:
        """Puts a source through: a recording by the agent's socket, a kernel table as batches.

        Raises:
            SpanliteError: what the source, the agent or the pipeline found wrong.
            OSError: an output cannot be written.
        """
        if isinstance(source, Recording):
            try:
                feed(source, self.socket, clock=self.clock, speed=speed, progress=progress)
            except OSError as error:
                self._raise_failure()
                raise RecordingError(f"{source.path}: the agent hung up ({error})") from error
        else:
            self._play_table(source, progress)
        self._raise_failure()

    def _play_table(self, table: KernelTable, progress: Progress) -> None:
        done = 0
        for batch in table.batches(self.clock):
            rows = len(batch.columns)
            problem: list[str | None] = []
            self._producer.send(SPANS_TOPIC, b"", encode_batch(batch), 0, problem.append)
            self._raise_failure()
            self.agent.add(catalogue.AGENT_SPANS_RECEIVED, rows)
            self.agent.add(catalogue.AGENT_SPANS_SENT, rows)
            done += rows
            progress(done, table.rows)
        for reason, count in table.rejected.items():
            self.agent.add(catalogue.AGENT_SPANS_RECEIVED, count)
            self.agent.add(catalogue.AGENT_SPANS_DROPPED, count, reason)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        for failure in self._server.failures:
            raise failure

    def _run(self) -> None:
        try:
            while self.pipeline.run_once(0.2) or not self._broker.closed:
                pass
        except (SpanliteError, OSError) as error:
            self._failure = error
        except Exception as error:  # a fault of ours: it must stop the run as well, and show where it is
            self._failure = error
            raise
        finally:
            self._broker.close()  # whoever still sends must not wait for a reader that is gone
