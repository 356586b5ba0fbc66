"""Settings, clock, logging and own counters."""
