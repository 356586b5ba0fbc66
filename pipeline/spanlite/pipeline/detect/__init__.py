"""Alerts from points: rules, detectors that take windows as they close, and two sets of alerts compared."""
