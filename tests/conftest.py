"""Settings of the test process that its children inherit."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and so would the commands that tests interrupt."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
