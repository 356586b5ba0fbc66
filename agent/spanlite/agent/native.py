"""Where the collector lies, the shared library that traced processes load, and the environment that makes them load it.

It is C, in agent/native of the source tree: an installation compiles it where it can, `make native` builds it anew.
libcuda loads it into every process that calls cuInit with CUDA_INJECTION64_PATH naming it; see docs/collector.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from spanlite.contract.errors import UsageError

LIBRARY = "libspanlite_collector.so"
_CUDA, _NVTX, _NEXT = "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "SPANLITE_NVTX_NEXT"
PLACES = (Path(__file__).parents[2] / "native" / "build", Path(__file__).parent)
"""In the source tree, where `make native` has built it, and beside this module, where an installation has it."""


def find_collector(named: Path | None = None, *, places: Iterable[Path] = PLACES) -> Path:
    """The collector's absolute path.

    Args:
        named: the file itself, where somebody says which.
        places: folders that are searched otherwise, in order.

    Raises:
        UsageError: it was not built, or the file that was named is not there.
    """
    return find_built(LIBRARY, named, places)


def find_built(library: str, named: Path | None, places: Iterable[Path] = PLACES) -> Path:
    """The absolute path of a library of ours.

    Raises:
        UsageError: it was not built, or the file that was named is not there.
    """
    if named is not None:
        if not named.is_file():
            raise UsageError(f"{named}: there is no such file; name a {library} that was built")
        return named.absolute()
    for place in places:
        if (place / library).is_file():
            return (place / library).absolute()
    raise UsageError(
        f"{library} is not built: run `make native` in the source tree (it needs gcc), or name a file that was built "
        "elsewhere for this kind of machine"
    )


def environment(collector: Path, socket: Path | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """What to add to a program's environment so that it is traced.

    Args:
        collector: of find_collector.
        socket: where the agent listens; None for the collector's own default.
        inherited: the environment that the program would have; a tool that already takes its NVTX ranges goes first.

    Raises:
        UsageError: another library is to be loaded by CUDA already, and there is room for one.
    """
    other = inherited.get(_CUDA, "")
    if other and other != str(collector):
        raise UsageError(
            f"{_CUDA} names {other} already: another profiler (nsys, ncu) is to be loaded into the program, and CUDA "
            "loads one; run it without the other"
        )
    said = {_CUDA: str(collector), _NVTX: str(collector)}
    if socket is not None:
        said["SPANLITE_SOCKET"] = str(socket.absolute())
    tool = inherited.get(_NVTX, "")
    return said | ({_NEXT: tool} if tool and tool != str(collector) else {})
