"""Keyed state in one SQLite file: what a runner without a stream engine keeps, together with its input's position.

All that is written between two `commit`s, offsets included, becomes durable at once or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from spanlite.contract.errors import StateError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (stage TEXT, key TEXT, name BLOB, value BLOB, PRIMARY KEY (stage, key, name))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition));
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT);
"""
_FORMAT = "1"


class KeptState:
    """The file. `key` is the current key of every value, log and table made from it."""

    def __init__(self, path: Path) -> None:
        """Opens it, or begins a new one; `path` may be ":memory:" in tests.

        Raises:
            StateError: it cannot be opened, is in use, or is of a later version.
        """
        self.key = ""
        self._path = path
        try:
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.executescript(_SCHEMA)
            self._file.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise StateError(
                f"{path}: cannot keep the pipeline's state ({error}); end the other runner that uses it, or choose "
                "another file"
            ) from error
        found = self.fact("format", _FORMAT)
        if found != _FORMAT:
            raise StateError(f"{path}: state of format {found}, this version knows {_FORMAT}; run the version of it")

    def close(self) -> None:
        """Gives up what was not committed."""
        self._file.close()

    def commit(self) -> None:
        """Makes all that was written since the last one durable.

        Raises:
            StateError: the disk is full or broken; nothing of it is durable.
        """
        try:
            self._file.execute("COMMIT")
            self._file.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise StateError(f"{self._path}: cannot write ({error}); free space, then start again") from error

    def fact(self, name: str, value: str) -> str:
        """What was kept under a name; `value` becomes it where nothing was."""
        self._file.execute("INSERT OR IGNORE INTO fact VALUES (?, ?)", (name, value))
        (found,) = self._file.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return str(found)

    def positions(self, topic: str) -> dict[int, int]:
        """Next offset to read of each partition that was read."""
        rows = self._file.execute("SELECT partition, next FROM position WHERE topic = ?", (topic,))
        return dict(rows.fetchall())

    def set_positions(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Sets next offsets to read."""
        self._file.executemany(
            "INSERT OR REPLACE INTO position VALUES (?, ?, ?)", [(topic, at, offset) for at, offset in offsets.items()]
        )

    def keys(self, stage: str) -> list[str]:
        """Every key that a stage has state of."""
        return [key for (key,) in self._file.execute("SELECT DISTINCT key FROM state WHERE stage = ?", (stage,))]

    def read(self, stage: str) -> list[tuple[bytes, bytes]]:
        """Names and values of the current key, in the order of the names."""
        rows = self._file.execute(
            "SELECT name, value FROM state WHERE stage = ? AND key = ? ORDER BY name", (stage, self.key)
        )
        return rows.fetchall()

    def write(self, stage: str, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Sets values of the current key."""
        self._file.executemany(
            "INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)",
            [(stage, self.key, name, value) for name, value in entries],
        )

    def erase(self, stage: str) -> None:
        """Removes all values of the current key."""
        self._file.execute("DELETE FROM state WHERE stage = ? AND key = ?", (stage, self.key))


class KeptValue:
    """keyed.Value over the file."""

    def __init__(self, state: KeptState, stage: str) -> None:
        self._state = state
        self._stage = stage

    def get(self) -> bytes | None:
        found = self._state.read(self._stage)
        return found[0][1] if found else None

    def put(self, value: bytes) -> None:
        self._state.write(self._stage, [(b"", value)])

    def clear(self) -> None:
        self._state.erase(self._stage)


class KeptLog:
    """keyed.Log over the file."""

    def __init__(self, state: KeptState, stage: str) -> None:
        self._state = state
        self._stage = stage
        self._next: dict[str, int] = {}

    def read(self) -> list[bytes]:
        found = self._state.read(self._stage)
        self._next[self._state.key] = 1 + int.from_bytes(found[-1][0], "big") if found else 0
        return [value for _, value in found]

    def append(self, value: bytes) -> None:
        if self._state.key not in self._next:
            self.read()
        at = self._next[self._state.key]
        self._state.write(self._stage, [(at.to_bytes(8, "big"), value)])
        self._next[self._state.key] = at + 1

    def replace(self, values: Sequence[bytes]) -> None:
        self._state.erase(self._stage)
        self._state.write(self._stage, [(at.to_bytes(8, "big"), value) for at, value in enumerate(values)])
        self._next[self._state.key] = len(values)


class KeptTable:
    """keyed.Table over the file."""

    def __init__(self, state: KeptState, stage: str) -> None:
        self._state = state
        self._stage = stage

    def values(self) -> list[bytes]:
        return [value for _, value in self._state.read(self._stage)]

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._state.write(self._stage, pairs)
