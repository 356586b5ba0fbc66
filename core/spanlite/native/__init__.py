"""The inner loops in C, where a compiler was there when spanlite was installed; else numpy does the same, slower.

Both give the same bits: the numpy code stands beside each caller and is what the C code is tested against.
"""

from spanlite.native.library import Library, library

__all__ = ["Library", "library"]
