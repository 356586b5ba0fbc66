"""Keyed state as the operators see it: small ports that a stream engine, or memory, fills.

State belongs to the current key, which whoever drives an operator has set before it calls. What is written survives a
crash together with the input's position; what an operator holds in memory besides is a cache of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class Value(Protocol):
    """One value."""

    def get(self) -> bytes | None: ...

    def put(self, value: bytes) -> None: ...

    def clear(self) -> None: ...


class Log(Protocol):
    """A list that is appended to cheaply."""

    def read(self) -> list[bytes]: ...

    def append(self, value: bytes) -> None: ...

    def replace(self, values: Sequence[bytes]) -> None: ...


class Table(Protocol):
    """Values by name."""

    def values(self) -> Iterable[bytes]: ...

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None: ...
