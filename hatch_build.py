"""Compiles core/spanlite/native/kernels.c while spanlite is installed or packed, where there is a C compiler.

Without one the package is the same but for the file, and numpy does the work. CC chooses the compiler.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCE = Path("core/spanlite/native/kernels.c")
_FLAGS = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden", "-shared", "-fPIC")


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # no settings of its own
    """Adds `_kernels.so`, and names the platform in a wheel that holds it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling's signature
        """Called before anything is packed."""
        if self.target_name != "wheel":
            return
        compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""]  # noqa: TID251
        source = Path(self.root) / _SOURCE
        built = source.with_name("_kernels.so")
        if not compiler[0]:
            built.unlink(missing_ok=True)  # of another source, perhaps
            self.app.display_warning("no C compiler found: spanlite will fold with numpy, which is slower")
            return
        fresh = built.with_suffix(".new")  # a process that has the old file open keeps it whole
        words = [*compiler, *_FLAGS, str(source), "-o", str(fresh)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            built.unlink(missing_ok=True)
            self.app.display_warning(f"{_SOURCE} was not compiled, spanlite will fold with numpy: {done.stderr}")
            return
        fresh.rename(built)
        build_data["artifacts"].append(str(built.relative_to(self.root)))
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
