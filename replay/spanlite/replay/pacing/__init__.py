"""When each item of a replay is due, and waiting until then."""
