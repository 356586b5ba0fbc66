"""Compiles the C of spanlite while it is installed or packed, where there is a compiler (CC chooses it).

The inner loops (core/spanlite/native/kernels.c): without them numpy does the work. The collector that traced programs
load (agent/native), what the agent reads GPU counters with, and what re-enacts kernels on a GPU (replay/native):
`make native` builds them elsewhere.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_KERNELS = Path("core/spanlite/native/kernels.c")
_FLAGS = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden", "-shared", "-fPIC")
_LIBRARIES = {
    "agent/spanlite/agent/libspanlite_collector.so": ("agent/native", "it has no collector to trace programs with"),
    "agent/spanlite/agent/libspanlite_counters.so": ("agent/native/counters", "its agent cannot read GPU counters"),
    "replay/spanlite/replay/libspanlite_enact.so": ("replay/native", "it cannot re-enact kernels on a GPU"),
}


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # no settings of its own
    """Adds what was compiled, and names the platform in a wheel that holds it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling's signature
        """Called before anything is packed."""
        if self.target_name != "wheel":
            return
        compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""]  # noqa: TID251
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "_kernels.so"
            words = [*compiler, *_FLAGS, str(_KERNELS), "-o", str(made)]
            built = self._keep(words, made, _KERNELS.with_name(made.name), "it will fold with numpy, which is slower")
            for place, (source, otherwise) in _LIBRARIES.items():
                words = ["make", "-s", "-C", source, f"CC={shlex.join(compiler)}", f"BUILD={folder}"]
                built += self._keep(words, Path(folder) / Path(place).name, Path(place), otherwise)
        if built:
            build_data["artifacts"] += built
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"

    def _keep(self, words: list[str], made: Path, target: Path, otherwise: str) -> list[str]:
        """Runs a command that makes a file, and puts the file in its place; what is packed, if anything."""
        place = Path(self.root) / target
        try:
            subprocess.run(words, cwd=self.root, capture_output=True, text=True, check=True)  # noqa: S603
        except (OSError, subprocess.CalledProcessError) as error:
            place.unlink(missing_ok=True)  # of another source, perhaps
            why = getattr(error, "stderr", None) or error
            self.app.display_warning(f"spanlite's {target.name} was not compiled, {otherwise}: {why}")
            return []
        fresh = place.with_suffix(".new")
        shutil.copyfile(made, fresh)
        fresh.rename(place)  # a process that has the old one open keeps it whole
        return [str(target)]
