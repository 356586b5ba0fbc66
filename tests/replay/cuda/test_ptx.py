"""The text of busy kernels: names that fit, and what the real assembler makes of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from spanlite.replay.cuda.ptx import ECHO, busy_text, entry_name

_SAID = re.compile(r"Compiling entry function '(.*)' for '(.*)'\n(?:.*\n)*?.*Used (\d+) registers")
_SPILLED = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_LOWER = "to lower bound of 24"
"""The assembler may take as many from sm_80 on, whatever is asked."""
COUNTS = (
    *range(24, 43),
    48,
    49,
    50,
    56,
    57,
    58,
    64,
    65,
    66,
    72,
    80,
    90,
    96,
    98,
    127,
    128,
    129,
    130,
    168,
    200,
    253,
    254,
)
"""What kernels of frameworks have, those with which one block less would fit, and both ends."""


@pytest.fixture(scope="session")
def ptxas() -> Path:
    """The assembler of a CUDA toolkit, or of the package nvidia-cuda-nvcc-cu12."""
    found = shutil.which("ptxas")
    if found:
        return Path(found)
    package = find_spec("nvidia.cuda_nvcc") if find_spec("nvidia") else None
    for folder in package.submodule_search_locations or () if package else ():
        if (Path(folder) / "bin" / "ptxas").is_file():
            return Path(folder) / "bin" / "ptxas"
    pytest.skip("needs ptxas, of a CUDA toolkit or of nvidia-cuda-nvcc-cu12")


def _compiled(ptxas: Path, folder: Path, texts: list[str], target: str) -> dict[str, int]:
    """Registers of each entry; none spills, and nothing else is warned of."""
    head = texts[0][: texts[0].index(".visible")]
    source = folder / "kernels.ptx"
    source.write_text(head + "".join(text[text.index(".visible") :] for text in texts))
    words: list[str | Path] = [ptxas, f"-arch={target}", "-v", source, "-o", folder / "kernels.cubin"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "warning" in line and _LOWER not in line]
    spilled = _SPILLED.findall(done.stderr)
    assert len(spilled) == len(texts)
    assert set(spilled) == {("0", "0", "0")}
    return {name: int(registers) for name, _, registers in _SAID.findall(done.stderr)}


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_busy_kernel_has_the_registers_asked_for(ptxas: Path, tmp_path: Path, target: str) -> None:
    """With others it would have another occupancy than the kernel that it stands for; odd ones count by eights."""
    texts = [busy_text(f"busy_{count}", count) for count in COUNTS]
    found = _compiled(ptxas, tmp_path, texts, target)
    even = {f"busy_{count}": count for count in COUNTS if count % 2 == 0}
    assert {name: found[name] for name in even} == even
    assert [-(-found[f"busy_{count}"] // 8) for count in COUNTS] == [-(-count // 8) for count in COUNTS]


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_fewer_and_more_registers_than_can_be_had(ptxas: Path, tmp_path: Path, target: str) -> None:
    """What is at the ends still compiles, without a spill."""
    few = [busy_text(f"few_{count}", count) for count in (0, 1, 8, 15, 16, 18, 23)]
    found = _compiled(ptxas, tmp_path, [*few, busy_text("most", 255), ECHO], target)
    assert found.pop("most") >= 254
    assert max(found.values()) <= 32  # up to which registers limit nothing


def test_static_shared_memory(ptxas: Path, tmp_path: Path) -> None:
    """Left out by the assembler, more blocks would fit than did."""
    source = tmp_path / "kernel.ptx"
    source.write_text(busy_text("axpy", 32, static_shared=4100))
    words: list[str | Path] = [ptxas, "-arch=sm_90", "-v", source, "-o", tmp_path / "kernel.cubin"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "Used 32 registers" in done.stderr
    assert "4100 bytes smem" in done.stderr


def test_names() -> None:
    """A name that no kernel can have would not compile; two that became one would be one kernel."""
    mangled = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15FillFunctorIhEESt5arrayIPcLm1EEEEviT0_T1_"
    for fitting in (mangled, "triton_poi_fused_add_0", "a", "$x"):
        assert entry_name(fitting) == fitting
    given = ["void f<int>(float*)", "void f<int>(float&)", "0start", "_", "", "x" * 1001, "x" * 1002, "größe"]
    made = [entry_name(name) for name in given]
    assert len(set(made)) == len(given)
    assert all(re.fullmatch(r"_[A-Za-z0-9_$]+", name) and len(name) < 1024 for name in made)


@pytest.mark.parametrize("name", ["void f<int>(float*)", "0start", "", "x" * 2000, "größe", "a.b"])
def test_made_names_compile(ptxas: Path, tmp_path: Path, name: str) -> None:
    """What fits by our account but not by the assembler's would end the run."""
    entry = entry_name(name)
    assert _compiled(ptxas, tmp_path, [busy_text(entry, 32)], "sm_90") == {entry: 32}
