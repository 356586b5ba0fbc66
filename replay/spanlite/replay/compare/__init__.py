"""How faithful a replay was: both sides read, every span matched, what differs counted and named."""
