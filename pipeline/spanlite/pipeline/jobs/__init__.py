"""Wiring of the pipeline for a Flink cluster: the only place that knows PyFlink. No arithmetic lives here."""
