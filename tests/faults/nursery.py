"""Forks `spanlite agent` from a process that has imported all it needs, so that a restart takes tenths of a second.

A line of input is a log file and the command's words, as JSON. Answers: the agent's pid, then its exit code, negative
for a signal.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

from spanlite.cli.main import main

_NEEDED = (
    "spanlite.agent.health",
    "spanlite.agent.identity.identifier",
    "spanlite.agent.sender",
    "spanlite.agent.server",
    "spanlite.agent.spool.gauges",
    "spanlite.cli.agent_flags",
    "spanlite.cli.commands.agent",
    "spanlite.exporters.server",
    "spanlite.exporters.table",
    "spanlite.runtime.allocator",
    "spanlite.transport.kafka",
)


def _serve() -> None:
    for name in _NEEDED:
        importlib.import_module(name)
    for line in iter(sys.stdin.readline, ""):
        log, *words = json.loads(line)
        child = os.fork()
        if child == 0:
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
            sys.exit(main(words))
        print(child, flush=True)  # noqa: T201  # whoever started it reads these two lines
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)  # noqa: T201


if __name__ == "__main__":
    _serve()
