"""Which exposition format a scraper gets, by its Accept header (RFC 9110, 12.5.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from spanlite.exporters.families import Family
from spanlite.exporters.native import protobuf
from spanlite.exporters.prometheus import openmetrics, text


@dataclass(frozen=True, slots=True)
class Format:
    """A format: a word for metrics, its content type, and what writes it."""

    word: str
    content_type: str
    write: Callable[[Iterable[Family]], bytes]


TEXT = Format("text", "text/plain; version=0.0.4; charset=utf-8", text)
OPENMETRICS = Format("openmetrics", "application/openmetrics-text; version=1.0.0; charset=utf-8", openmetrics)
PROTOBUF = Format(
    "protobuf",
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
    protobuf,
)


def choose(accept: str) -> Format:
    """The format the scraper likes best; text where it names none of ours, as every Prometheus client does."""
    best, best_quality = TEXT, 0.0
    for entry in accept.split(","):
        kind, parameters = _parse(entry)
        found = _format(kind, parameters)
        quality = _quality(parameters.get("q", "1"))
        if found and quality > best_quality:
            best, best_quality = found, quality
    return best


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether gzip may be used."""
    entries = dict(_parse(entry) for entry in accept_encoding.split(","))
    return "gzip" in entries and _quality(entries["gzip"].get("q", "1")) > 0


def _format(kind: str, parameters: dict[str, str]) -> Format | None:
    if kind == "application/vnd.google.protobuf":
        wanted = ("io.prometheus.client.metricfamily", "delimited")
        return PROTOBUF if (parameters.get("proto"), parameters.get("encoding")) == wanted else None
    if kind == "application/openmetrics-text":
        return OPENMETRICS if parameters.get("version", "1.0.0") == "1.0.0" else None
    if kind == "text/plain":
        return TEXT if parameters.get("version", "0.0.4") == "0.0.4" else None
    return TEXT if kind in ("*/*", "text/*") else None


def _parse(entry: str) -> tuple[str, dict[str, str]]:
    kind, *rest = (part.strip().lower() for part in entry.split(";"))
    pairs = (part.partition("=") for part in rest)
    return kind, {name.strip(): value.strip().strip('"') for name, _, value in pairs}


def _quality(text: str) -> float:
    """A q value; 0 for one that is none."""
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0
