"""Producer and consumer ports; an in-memory twin of each, and Kafka."""
