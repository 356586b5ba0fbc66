"""A line on stderr that is drawn over itself."""

from __future__ import annotations

import sys
from typing import TypeVar

_WIDTH = 150
_Line = TypeVar("_Line", bound="DrawnLine")


class DrawnLine:
    """Nothing where stderr is no terminal. As a context it ends the line.

    Attributes:
        shown: whether anything is drawn.
    """

    def __init__(self, *, quiet: bool) -> None:
        self.shown = not quiet and sys.stderr.isatty()
        self._drawn = False

    def __enter__(self: _Line) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write("\n")

    def draw(self, text: str) -> None:
        """Draws over what was there."""
        if not self.shown:
            return
        self._drawn = True
        sys.stderr.write(f"\r{text[:_WIDTH]:{_WIDTH}}")
        sys.stderr.flush()
