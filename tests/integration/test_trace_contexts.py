"""Trace contexts all the way: a traced program with OpenTelemetry, the agent, batches, the archive."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import Frame, Header
from spanlite.agent.process import TracedProcess
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.pipeline.archive.read import read_batches
from spanlite.pipeline.archive.write import write_batches
from spanlite.runtime.clock import ManualClock
from tests.agent.collector.building import Built, build
from tests.agent.collector.program import until
from tests.agent.collector.tap import Connection, Tap
from tests.agent.playing import rows
from tests.agent.test_tracecontext import batches_of, serving

_PROGRAM = """
import ctypes, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from spanlite.agent import attach
from spanlite.agent.otel_spans import SpanRanges

cuda, cupti = (ctypes.CDLL(path) for path in sys.argv[3:5])
tracing = attach(socket=sys.argv[1], collector=sys.argv[2], native=sys.argv[5] == "True", budget="full")
cupti.mock_context()
provider = TracerProvider()
provider.add_span_processor(SpanRanges(tracing))
tracer = provider.get_tracer("test")
remote = SpanContext(int("4bf92f3577b34da6a3ce929d0e0e4736", 16), 7, is_remote=True, trace_flags=TraceFlags(1))
incoming = set_span_in_context(NonRecordingSpan(remote))
with tracing.range("server"):
    for turn in range(2):
        with tracer.start_as_current_span("request", context=incoming) as span:
            print(format(span.get_span_context().span_id, "016x"))
            cupti.mock_launch()
"""


def agent_of(connection: Connection) -> list[Batch]:
    """What the agent makes of a collector's frames."""
    (_, _, hello), *frames = connection.frames
    traced = TracedProcess.from_hello(Header(Frame.HELLO, len(hello), 0), hello, 1, ManualClock(), AgentCounts())
    batches = [
        batch
        for kind, sequence, payload in frames
        for batch in traced.take(Header(kind, len(payload), sequence), payload)
    ]
    return [decode_batch(encode_batch(batch)) for batch in [*batches, *traced.finish()]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("contexts"))


def test_the_archive_has_the_ids_that_the_agent_found(tmp_path: Path) -> None:
    """Trace ids, remote parents, starts and parents of every row, after encoding, decoding, archiving and reading."""
    batches = batches_of(serving().stamped(range(0, 60, 7)))
    write_batches(tmp_path, batches)
    back = list(read_batches(tmp_path, order="sequence"))
    for names in ("trace", "remote_parent", "trace_start", "parent", "span", "name", "stage"):
        assert rows(back)[names].tolist() == rows(batches)[names].tolist()
    assert 0xFFFFFFFFFFFFFFFF in rows(back)["remote_parent"].tolist()


@pytest.mark.parametrize("native", [True, False])
def test_spans_of_a_program_give_their_trace_to_its_ranges(built: Built, *, native: bool) -> None:
    """Both collectors: a service's request carries on the caller's trace, and its range hangs under the span."""
    with tempfile.TemporaryDirectory() as folder:
        tap = Tap(Path(folder) / "agent.sock")
        words = (tap.path, built.collector, built.cuda, built.cupti, native)
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *map(str, words)], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        until(lambda: bool(tap.connections) and tap.connections[0].over, "the end of the connection")
        tap.stop()
    table = rows(agent_of(next(one for one in tap.connections if one.of(Frame.RANGES))))
    assert sorted(table["name"].tolist()) == ["request", "request", "server"]
    requests = table["name"] == "request"
    assert set(table["trace"][requests].tolist()) == {bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e4736")}
    assert [format(one, "016x") for one in table["remote_parent"][requests].tolist()] == done.stdout.split()
    assert set(table["stage"][requests].tolist()) == {"server"}
    assert table["remote_parent"][~requests].tolist() == [0]
