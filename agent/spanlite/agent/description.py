"""The description that lies beside a recording: JSON, checked value by value, so that an error names the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spanlite.contract.errors import RecordingError

_JSON_MAX_BYTES = 256 << 20


def load_json(about: Path) -> dict[str, Any]:
    """The object in a JSON file; RecordingError where there is none."""
    if about.stat().st_size > _JSON_MAX_BYTES:
        raise RecordingError(f"{about}: larger than {_JSON_MAX_BYTES} bytes; this is no description of a recording")
    try:
        loaded = json.loads(about.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{about}: no valid JSON ({error}); copy it again") from error
    if not isinstance(loaded, dict):
        raise RecordingError(f"{about}: holds a JSON {type(loaded).__name__}, an object is due; copy it again")
    return loaded


def _whole(about: Path, key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise RecordingError(f"{about}: {key} is {value!r:.80}, a whole number from 0 to 2^64 is due; correct it")
    return value


def _text(about: Path, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise RecordingError(f"{about}: {key} is {value!r:.80}, a string is due; correct it")
    return value


class Description:
    """Access to the JSON object that says which key is wrong, and how."""

    def __init__(self, about: Path, values: dict[str, Any]) -> None:
        self._about = about
        self._values = values

    def value(self, key: str) -> Any:
        """Whatever stands under a key that has to be there."""
        if key not in self._values:
            raise RecordingError(f"{self._about}: the key {key!r} is missing; record again, or add it")
        return self._values[key]

    def integer(self, key: str) -> int:
        """A whole number from 0 on."""
        return _whole(self._about, key, self.value(key))

    def mapping(self, key: str) -> dict[str, Any]:
        """An object."""
        value = self.value(key)
        if not isinstance(value, dict):
            raise RecordingError(f"{self._about}: {key} is {value!r:.80}, an object is due; correct it")
        return value

    def by_number(self, key: str) -> dict[int, Any]:
        """An object whose keys are decimal numbers."""
        value = self.mapping(key)
        odd = [word for word in value if not (word.isascii() and word.isdigit() and len(word) <= 20)]
        if odd:
            raise RecordingError(f"{self._about}: {key} has the key {odd[0]!r:.80}, a number is due; correct it")
        return {int(word): item for word, item in value.items()}

    def text(self, key: str) -> str:
        """A string."""
        return _text(self._about, key, self.value(key))

    def counts(self) -> dict[int, int]:
        """Kind → number of records."""
        return {kind: _whole(self._about, f"counts.{kind}", n) for kind, n in self.by_number("counts").items()}

    def names(self) -> dict[int, str]:
        """Pointer → string."""
        return {at: _text(self._about, f"names.{at}", name) for at, name in self.by_number("names").items()}

    def sizes(self) -> dict[int, int]:
        """Kind → bytes of a record."""
        found: dict[int, int] = {}
        for kind, sizes in self.by_number("sizes").items():
            if not isinstance(sizes, list) or len(sizes) != 1:
                raise RecordingError(
                    f"{self._about}: sizes.{kind} is {sizes!r:.80}, a list of one size is due: "
                    "records of one kind and version have one size; record again"
                )
            found[kind] = _whole(self._about, f"sizes.{kind}", sizes[0])
        return found

    def bracket(self) -> tuple[int, int]:
        """``unix_ns``: two times in order."""
        value = self.value("unix_ns")
        if not isinstance(value, list) or len(value) != 2:
            raise RecordingError(f"{self._about}: unix_ns is {value!r:.80}, a list of two times is due; correct it")
        before, after = (_whole(self._about, "unix_ns", time) for time in value)
        if after < before:
            raise RecordingError(f"{self._about}: unix_ns is {value}, the second lies before the first; record again")
        return before, after

    def gpu(self) -> dict[str, int | str | None]:
        """``props``: numbers, strings and nulls; those that spanlite needs are there and of the right type."""
        props = self.mapping("props")
        usable = {key: value for key, value in props.items() if value is None or isinstance(value, int | str)}
        found: dict[str, int | str | None] = {"index": 0, "uuid": None, **usable}
        for key in ("major", "minor", "multi_processor_count", "index"):
            _whole(self._about, f"props.{key}", found.get(key))
        _text(self._about, "props.name", found.get("name"))
        return found
