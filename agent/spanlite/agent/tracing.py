"""Spans of the agent's own rare work: its start, its connections, its backlog. Kept by nobody unless asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Value = str | int | float
Note = Callable[[str, Value], None]
"""Adds an attribute to a span that is open."""


class Tracing(Protocol):
    """Where spans go; any thread may open one."""

    def span(self, name: str, attributes: Mapping[str, Value]) -> AbstractContextManager[Note]: ...


class NoTracing:
    """Tells nobody."""

    def span(self, name: str, attributes: Mapping[str, Value]) -> AbstractContextManager[Note]:  # noqa: ARG002 - Tracing's
        """A span that is not kept."""
        return nullcontext(lambda _key, _value: None)
