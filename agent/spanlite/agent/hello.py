"""What a traced process says of itself in its first frame, checked value by value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from spanlite.agent.frames import unpack_text
from spanlite.contract.batch import Gpu
from spanlite.contract.errors import FrameError
from spanlite.contract.names import clean_text

_GPU_NUMBERS = ("compute_major", "compute_minor", "multiprocessors")


class Hello(NamedTuple):
    """A checked HELLO.

    Attributes:
        cupti_version: as `cuptiGetVersion` gives it.
        sizes: kind → bytes of a record, as the process saw them.
        session: 64 bits that no other process has.
        gpus: in order of their indexes, which are the device ids of records.
        resource: OpenTelemetry resource attributes, each cut as names are.
    """

    cupti_version: int
    sizes: Mapping[int, int]
    session: int
    gpus: tuple[Gpu, ...]
    resource: dict[str, str]


def read_hello(payload: bytes) -> Hello:
    """What a HELLO frame says.

    Raises:
        FrameError: reasons text, and hello where a value lacks or is none.
    """
    said = unpack_text(payload)
    try:
        return Hello(
            cupti_version=_number(said["cupti_version"]),
            sizes={_number(key): _number(value) for key, value in _below("size.", said).items()},
            session=_session(said["session"]),
            gpus=_gpus(said),
            resource={key: clean_text(value) for key, value in _below("resource.", said).items()},
        )
    except (KeyError, ValueError) as error:
        raise FrameError("hello", f"HELLO lacks a value or holds a bad one: {error}") from error


def _below(prefix: str, said: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in said.items() if key.startswith(prefix)}


def _gpus(said: Mapping[str, str]) -> tuple[Gpu, ...]:
    indexes = sorted({_number(key.split(".")[0]) for key in _below("gpu.", said)})
    return tuple(
        Gpu(
            uuid=clean_text(said[f"gpu.{index}.uuid"]),
            index=index,
            name=said.get(f"gpu.{index}.name", ""),
            pci_bus_id=said.get(f"gpu.{index}.pci_bus_id", ""),
            mig_profile=said.get(f"gpu.{index}.mig_profile", ""),
            mig_instance=said.get(f"gpu.{index}.mig_instance", ""),
            **{name: _number(said.get(f"gpu.{index}.{name}", "0")) for name in _GPU_NUMBERS},
        )
        for index in indexes
    )


def _session(text: str) -> int:
    """64 bits in hexadecimal; ValueError where it is none."""
    if not re.fullmatch("[0-9a-fA-F]{1,16}", text):
        raise ValueError(f"session {text[:80]!r} is not 1 to 16 hexadecimal digits")
    return int(text, 16)


def _number(text: str) -> int:
    """A whole number of 31 bits; ValueError where it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 31):
        raise ValueError(f"{text[:80]!r} is no whole number below 2^31")
    return int(text)
