"""Choice of the format."""

from __future__ import annotations

import pytest

from spanlite.exporters.formats import accepts_gzip, choose

PROTO = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
OM = "application/openmetrics-text;version=1.0.0"


TEXT = "text/plain;version=0.0.4"
# What real scrapers send: Prometheus 2.42 with native histograms off and on, and 3.x with them off.
PROMETHEUS_2 = f"{OM},application/openmetrics-text;version=0.0.1;q=0.75,{TEXT};q=0.5,*/*;q=0.1"
PROMETHEUS_2_NATIVE = PROMETHEUS_2.replace(OM, f"{PROTO},{OM};q=0.8")
PROMETHEUS_3 = f"{OM};escaping=allow-utf-8;q=0.5,{PROTO};q=0.4,text/plain;version=1.0.0;q=0.3,{TEXT};q=0.2,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "word"),
    [
        (PROMETHEUS_2, "openmetrics"),
        (PROMETHEUS_2_NATIVE, "protobuf"),
        (PROMETHEUS_3, "openmetrics"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text"),
        ("*/*", "text"),
        ("", "text"),
        ("application/json", "text"),
        (f"{OM};q=0.2, text/plain;q=0.3", "text"),
        (f"{OM};q=0, */*;q=0.1", "text"),
        (f"{OM};q=nonsense", "text"),
        ("application/openmetrics-text;version=2.0.0", "text"),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", "text"),
        (' Application/OpenMetrics-Text ; Version="1.0.0" ', "openmetrics"),
        (";;,=;q=,,", "text"),
    ],
)
def test_the_best_liked_known_format_is_chosen(accept: str, word: str) -> None:
    """Proves the choice for real scrapers and for nonsense."""
    assert choose(accept).word == word


@pytest.mark.parametrize(
    ("header", "accepted"),
    [("gzip", True), ("deflate, GZIP;q=0.5", True), ("gzip;q=0", False), ("identity", False), ("", False)],
)
def test_gzip_is_used_where_it_is_accepted(header: str, *, accepted: bool) -> None:
    """Proves the reading of Accept-Encoding."""
    assert accepts_gzip(header) is accepted
