"""spanlite as it is where no compiler was: numpy in place of the library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from spanlite.contract import body, planes, tables, wire
from spanlite.pipeline import fold, plausible
from spanlite.pipeline.archive import encode
from spanlite.replay import items, runs


@contextmanager
def numpy_only() -> Iterator[None]:
    """Nobody who asks for the library gets it."""
    with ExitStack() as stack:
        for module in (body, encode, fold, items, planes, plausible, runs, tables, wire):
            stack.enter_context(patch.object(module, "library", lambda: None))
        yield
