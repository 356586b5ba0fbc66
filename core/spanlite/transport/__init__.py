"""Producer and consumer ports, with an in-memory twin of each."""
