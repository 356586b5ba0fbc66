"""Where the libcupti lies that the program's framework works with, before the framework is imported.

Whoever loads libcupti first decides which one the process has: a framework that comes later finds it by its name. So a
collector that starts before `import torch` must load the one that torch would have loaded, or its records are of
another version than torch's profiler expects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_BY_MAJOR = {
    "13": ("nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.13", "torch/lib/libcupti.so.13"),
    "12": ("nvidia/cuda_cupti/lib/libcupti.so.12", "torch/lib/libcupti.so.12"),
}
"""Where NVIDIA's and PyTorch's wheels put it, by CUDA's major version, below a folder of packages."""
_TORCH_CUDA = re.compile(r"""^cuda\s*(?::[^=]*)?=\s*['"](\d+)\.""", re.MULTILINE)


def packaged_cupti(folders: Iterable[str]) -> Path | None:
    """The libcupti of the first folder of packages that has one, of the CUDA version that torch there was built for.

    Args:
        folders: as in sys.path; what is no folder is passed over.
    """
    for folder in map(Path, folders):
        majors = _torch_major(folder)
        for major in majors or tuple(_BY_MAJOR):
            for place in _BY_MAJOR.get(major, ()):
                if (folder / place).is_file():
                    return folder / place
    return None


def _torch_major(folder: Path) -> tuple[str, ...]:
    """CUDA's major version in torch/version.py, a file of a few lines; nothing where there is no torch with CUDA."""
    try:
        found = _TORCH_CUDA.search((folder / "torch/version.py").read_text("utf-8"))
    except (OSError, UnicodeDecodeError):  # no torch here
        return ()
    return (found[1],) if found else ()
