"""Metrics for Prometheus from a table of newest points."""
