"""Where a libcupti may lie, in the order in which the collector looks (agent/native/cupti.c)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spanlite.agent.doctor.probe import Probe
from spanlite.agent.doctor.programs import Running

NAMED, LOADER = "SPANLITE_CUPTI", "the loader's path"
_BY_NAME = ("libcupti.so.13", "libcupti.so.12")
_BY_PLACE = (
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.1[23]",
    "/usr/local/cuda/targets/*/lib/libcupti.so.1[23]",
    "/usr/local/cuda-1[23]*/extras/CUPTI/lib64/libcupti.so.1[23]",
    "/usr/local/cuda-1[23]*/targets/*/lib/libcupti.so.1[23]",
)
_OF_PIP = ("nvidia/cu13/lib/libcupti.so.1*", "nvidia/cuda_cupti/lib/libcupti.so.1*")


class Place(NamedTuple):
    """A libcupti that may be there.

    Attributes:
        how: the rule by which it is found, in words.
        library: what is opened: a path, or a name for the loader.
        searched: whether the collector would look there by itself.
    """

    how: str
    library: str
    searched: bool = True


def places(probe: Probe, program: Running | None, environment: Mapping[str, str]) -> Iterator[Place]:
    """All of them, in the collector's order; those that only a program can bring come last.

    Args:
        program: whose libcupti counts, if it has one loaded.
        environment: of the program, or of the doctor, for which SPANLITE_CUPTI counts.
    """
    root = program.root if program else ""
    named = environment.get("SPANLITE_CUPTI")
    if named:
        yield Place(NAMED, f"{root}{named}" if "/" in named else named)
    loaded = program.mapping("libcupti.so") if program else []
    for path in loaded:
        yield Place(f"loaded in process {program.pid if program else 0}", f"{root}{path}")
    for name in _BY_NAME:
        yield Place(LOADER, name)
    for pattern in _BY_PLACE:
        for path in reversed(probe.files.glob(root + pattern)):
            yield Place("toolkit", path)
    for folder in _packages(probe, program, environment):
        for pattern in _OF_PIP:
            for path in probe.files.glob(f"{root}{folder}/{pattern}"):
                if path.removeprefix(root) not in loaded:
                    yield Place("Python package", path, searched=False)


def _packages(probe: Probe, program: Running | None, environment: Mapping[str, str]) -> list[str]:
    """Folders of Python packages: of the program, of active environments, of this Python, of the system."""
    found: list[str] = []
    if program:
        inside = (re.match(r"(.*/(?:site|dist)-packages)/", path) for path in program.mapped)
        found += [match[1] for match in inside if match]
    else:
        found += probe.python_path
    active = [environment[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environment.get(name)]
    patterns = [f"{folder}/lib/python3*/site-packages" for folder in active]
    patterns += ["/usr/local/lib/python3*/*-packages", "/usr/lib/python3/dist-packages"]
    found += [path for pattern in patterns for path in probe.files.glob(pattern)]
    return list(dict.fromkeys(found))
