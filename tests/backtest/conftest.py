"""A recorded serving run that went through agent and pipeline: its archive, and the points of the live run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from spanlite.cli.embedded import Embedded, open_source
from spanlite.contract.batch import Batch
from spanlite.contract.codec import encode_batch
from spanlite.contract.points import Point, Series
from spanlite.pipeline.archive.write import ArchiveWriter
from spanlite.pipeline.embedded import EmbeddedPipeline, Outputs, drain
from spanlite.pipeline.windows import WindowPolicy
from spanlite.transport.memory import MemoryBroker, MemoryConsumer

RECORDING = Path(__file__).parents[1] / "data" / "h200" / "serve-cupti130500.bin.xz"
SECOND_NS = 10**9
Told = tuple[object, ...]


class Live(NamedTuple):
    """A run as it was: the archive that it wrote, its batches, and the points that it told of windows of a second."""

    archive: Path
    batches: list[Batch]
    points: list[Point]


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    """The recording by the agent's socket, through the embedded pipeline, into an archive."""
    folder = tmp_path_factory.mktemp("live")
    batches: list[Batch] = []
    found: list[Point] = []
    writer = ArchiveWriter(folder, row_group_rows=20_000)
    outputs = Outputs(batch=batches.append, window_points=found.extend)
    policy = WindowPolicy(width_ns=SECOND_NS, lateness_ns=None)
    with Embedded(outputs, policy=policy, archive=writer) as embedded:
        embedded.play(open_source(RECORDING))
    return Live(folder, batches, found)


def in_production(batches: Iterable[Batch], policy: WindowPolicy, *, top_k: int = 500) -> list[Point]:
    """The window points of the embedded pipeline, to which the batches come as messages in this order."""
    broker = MemoryBroker(most_bytes=1 << 40)
    for batch in batches:
        broker.put("spans", b"", encode_batch(batch), 0)
    broker.close()
    found: list[Point] = []
    pipeline = EmbeddedPipeline(
        MemoryConsumer(broker, "spans"), Outputs(window_points=found.extend), policy=policy, top_k=top_k
    )
    for _ in drain(pipeline):
        pass
    pipeline.finish()
    return found


def told(points: Iterable[Point], key: Callable[[Series], object] | None = None) -> list[Told]:
    """Everything that points say, one tuple a point, sorted: equal for equal points in any order."""
    return sorted(
        (
            point.window_start_ns,
            point.window_end_ns,
            key(point.series) if key else point.series,
            *(point.count, point.spans, point.sum_ns, point.min_ns, point.max_ns, point.warp_ns, point.bytes),
            tuple(point.bucket_index.tolist()),
            tuple(point.bucket_count.tolist()),
            (longest.trace_id, longest.span_id, longest.duration_ns, longest.start_ns)
            if (longest := point.exemplar)
            else None,
            point.cumulative,
        )
        for point in points
    )
