"""What a shared library needs, read from its bytes: machine, and the newest version of glibc's symbols."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_SHT_GNU_VERNEED = 0x6FFFFFFE
_MACHINES = {3: "i386", 62: "x86_64", 183: "aarch64"}


class Needs(NamedTuple):
    """Machine as `uname -m` names it, and the least glibc, (0, 0) where none is named."""

    machine: str
    glibc: tuple[int, ...]


def needs(data: bytes) -> Needs:
    """What a 64-bit little-endian ELF file needs.

    Raises:
        ValueError: the bytes are none, or cut off.
    """
    try:
        return _needs(data)
    except (struct.error, IndexError) as error:
        raise ValueError(f"the file is cut off ({error})") from error


def _needs(data: bytes) -> Needs:
    ident, _, machine, _, _, _, at, _, _, _, _, size, count, _ = _HEADER.unpack_from(data)
    if not ident.startswith(b"\x7fELF\x02\x01"):
        raise ValueError("the file is no 64-bit library")
    sections = [_SECTION.unpack_from(data, at + index * size) for index in range(count)]
    versions = [
        tuple(map(int, found[1].split(b".")))
        for section in sections
        if section[1] == _SHT_GNU_VERNEED
        for name in _names(data, section[4], sections[section[6]][4])
        if (found := re.fullmatch(rb"GLIBC_([0-9]+(?:[.][0-9]+)+)", name))
    ]
    return Needs(_MACHINES.get(machine, f"machine {machine}"), max(versions, default=(0, 0)))


def _names(data: bytes, at: int, strings: int) -> list[bytes]:
    """Names of all needed versions; each entry says how far the next one is, 0 at the end."""
    found: list[bytes] = []
    further = 1
    while further:
        _, count, _, first, further = _VERNEED.unpack_from(data, at)
        entry = at + first
        for _ in range(count):
            _, _, _, name, step = _VERNAUX.unpack_from(data, entry)
            found.append(data[strings + name : data.index(b"\0", strings + name)])
            entry += step
        at += further
    return found
