"""The detector of a rule."""

from __future__ import annotations

from spanlite.pipeline.detect.port import Detector
from spanlite.pipeline.detect.ratio import RatioDetector
from spanlite.pipeline.detect.rules import Rule
from spanlite.pipeline.detect.threshold import ThresholdDetector


def detector_of(rule: Rule) -> Detector:
    """A new one, which has seen nothing."""
    return ThresholdDetector(rule) if rule.baseline is None else RatioDetector(rule)
