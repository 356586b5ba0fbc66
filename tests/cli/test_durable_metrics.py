"""What `spanlite pipeline run` tells of itself."""

from __future__ import annotations

import http.client

import pytest

from spanlite.cli.durable import _metrics
from spanlite.contract import catalogue
from spanlite.contract.errors import ExporterError
from tests.stack.process import free_port


def test_its_counters_are_served_while_it_runs() -> None:
    """Losses of a pipeline without a cluster around it would be told nobody; they are asked anew at each scrape."""
    values = iter((1.0, 5.0))
    port = free_port()
    with _metrics(lambda: {catalogue.PIPELINE_LATE_SPANS.name: [({}, next(values))]}, port) as where:
        assert where == f"; metrics: http://127.0.0.1:{port}/metrics"
        for value in ("1.0", "5.0"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            lines = answer.read().decode().splitlines()
            connection.close()
            assert answer.status == 200
            assert f"spanlite_pipeline_late_spans_total {value}" in lines


def test_nothing_listens_unless_told_to() -> None:
    """A port would be open that nobody asked for, or a second pipeline on the machine would not start."""
    with _metrics(dict, 0) as where:
        assert where == ""


def test_a_taken_port_is_told_at_the_start() -> None:
    """It would run on without being watched."""
    port = free_port()
    with _metrics(dict, port), pytest.raises(ExporterError, match=f"port {port}"), _metrics(dict, port):
        pass
