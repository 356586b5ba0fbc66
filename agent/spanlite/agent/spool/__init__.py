"""The bounded disk spool: what came in waits here, across outages and restarts, until Kafka has it."""
