"""The metric catalogue and the page made from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spanlite.contract.catalogue import CATALOGUE, MetricSpec, MetricType, markdown

SPECS = pytest.mark.parametrize("spec", CATALOGUE.values(), ids=list(CATALOGUE))


@SPECS
def test_names_follow_prometheus_conventions(spec: MetricSpec) -> None:
    """Proves suffix and type, base unit and label syntax of each metric."""
    assert re.fullmatch(r"spanlite_[a-z0-9_]+", spec.name)
    assert spec.name.endswith("_total") == (spec.type is MetricType.COUNTER)
    assert spec.name.endswith("_info") == (spec.type is MetricType.INFO)
    assert spec.unit in ("", "seconds", "bytes", "ratio")
    assert all(re.fullmatch(r"[a-zA-Z_]+", label) and not re.search("[a-z][A-Z]", label) for label in spec.labels)
    assert spec.meaning.endswith(".")


def test_docs_metrics_md_is_up_to_date() -> None:
    """Proves that the page is what the catalogue says now."""
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text() == markdown(), "run: python -m spanlite.contract.catalogue > docs/metrics.md"
