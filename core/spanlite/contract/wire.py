"""A look at protobuf bytes before they are parsed: two bytes of a repeated field can cost a hundred of memory."""

from __future__ import annotations

from spanlite.contract.errors import BatchError
from spanlite.native import columns as native
from spanlite.native import library

HARMLESS_BYTES = 256 << 10
"""Shorter messages are not looked through: the worst of them parses to about 20 MB."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def check_field_count(data: bytes, most: int, what: str) -> None:
    """Refuses a long message of more than `most` fields at its top level; malformed ones are left to the parser.

    Raises:
        BatchError: reason fields.
    """
    if len(data) <= HARMLESS_BYTES:
        return
    fast = library()
    fields = _count(data, most) if fast is None else native.count_fields(fast, data, most)
    if fields > most:
        raise BatchError("fields", f"{what} has more than {most} fields")
    if fields < 0:  # groups are not in use: the layout has none, now or later
        raise BatchError("fields", f"{what} has a field of an unknown wire type before byte {-1 - fields}")


def _count(data: bytes, most: int) -> int:
    """Fields up to most + 1; -1 - the position after the tag of one with an unknown wire type."""
    at, fields = 0, 0
    while at < len(data) and fields <= most:
        fields += 1
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            _, at = _varint(data, at)
        elif wire == _LENGTH:
            size, at = _varint(data, at)
            at += size
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            return -1 - at
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return value, len(data)  # cut off or too long: the parser stops here, too
