"""The `spanlite` command: a table of commands, each imported only when chosen."""
