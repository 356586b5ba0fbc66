"""All of it: every quantity with its arithmetic, in the order in which they depend on each other."""

from __future__ import annotations

from collections.abc import Mapping

from spanlite.pipeline.sizing.figures import FIGURES, Figure
from spanlite.pipeline.sizing.fleet import agents, load, points
from spanlite.pipeline.sizing.jobs import FULL_BATCH, archive_job, metrics_job
from spanlite.pipeline.sizing.request import Request, check
from spanlite.pipeline.sizing.serving import exporter_start, exporters, kafka
from spanlite.pipeline.sizing.sheet import Line, Sheet

_CONSTANTS = {"full_batch": float(FULL_BATCH), "hour": 3600.0, "segment_bytes": float(1 << 30)}
"""segment_bytes: Kafka's default, to which spanlite.points adds a new segment every hour; what is in a partition's
newest segment is not compacted."""


def size(request: Request, figures: Mapping[str, Figure] = FIGURES) -> list[Line]:
    """Every quantity that the fleet needs.

    Raises:
        UsageError: as `request.check`.
    """
    check(request)
    given = request.numbers()
    measured = {name: figure.value for name, figure in figures.items()}
    assumed = [name for name, figure in figures.items() if figure.assumed and name not in given]
    broker = {"broker_bytes": request.broker_mbps * 1e6}
    sheet = Sheet({**_CONSTANTS, **measured, **given, **broker}, assumed)
    load(sheet, request)
    agents(sheet, request)
    points(sheet, request)
    metrics_job(sheet, request)
    archive_job(sheet, request)
    kafka(sheet, request)
    exporters(sheet, request)
    exporter_start(sheet)
    return sheet.lines
