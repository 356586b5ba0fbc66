"""A local store that can be killed at each of its steps, and a reading of its files that is not spanlite's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spanlite.pipeline.archive.local import LocalStore

Span = tuple[bytes, int, int]
"""Producer, sequence of its batch, row within its session."""


class KilledError(BaseException):
    """The process ends here; nothing catches it but the test."""


class SteppingStore(LocalStore):
    """Calls `at_step` before and after everything that it changes: at most one change lies between two calls."""

    def __init__(self, root: Path, at_step: Callable[[int], None]) -> None:
        super().__init__(root)
        self._at_step = at_step
        self._steps = 0

    @contextmanager
    def write(self, name: str) -> Iterator[Any]:  # type: ignore[override]  # a context all the same
        self._step()
        with super().write(name) as file:
            yield file
            self._step()
        self._step()

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._step()
            super().delete([name])
        self._step()

    def _step(self) -> None:
        self._steps += 1
        self._at_step(self._steps)


def kill_at(step: int) -> Callable[[int], None]:
    """For a SteppingStore: the process ends at that step."""

    def kill(now: int) -> None:
        if now == step:
            raise KilledError

    return kill


def visible_spans(root: Path) -> Counter[Span]:
    """How often each span is there for a reader that knows `spanlite.replaces`, read by pyarrow alone."""
    spans: Counter[Span] = Counter()
    for folder in {path.parent for path in root.rglob("[!.]*.parquet")}:
        files = {path.name: _read(path, path.stat().st_ino) for path in folder.glob("[!.]*.parquet")}
        replaced = {name for replaces, _ in files.values() for name in replaces}
        for name in files.keys() - replaced:
            spans.update(files[name][1])
    return spans


@lru_cache(maxsize=4096)
def _read(path: Path, _inode: int) -> tuple[list[str], list[Span]]:
    """What a file replaces, and its spans; files do not change, so each is read once."""
    with pq.ParquetFile(path) as file:
        replaces = json.loads((file.metadata.metadata or {}).get(b"spanlite.replaces", b"[]"))
        rows = file.read(columns=["producer", "batch_sequence", "session_row"]).to_pydict()
    return replaces, list(zip(rows["producer"], rows["batch_sequence"], rows["session_row"], strict=True))
