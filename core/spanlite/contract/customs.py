"""Series of custom metrics as one text, in Prometheus's notation: `rope.cosine_compute_ms{layer="3",sequence="7"}`.

The text is canonical: labels are sorted by name, values escaped, so equal series have equal texts. It imports nothing
but the standard library, since traced programs write it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

NAME_CHARS = 96
"""Longest metric name: as long as a kernel's id may be."""
LABELS = 16
"""Most labels of a series."""
LABEL_CHARS = 64
VALUE_CHARS = 200
"""Longest label value; a longer one is cut and ends in a hash of the whole."""
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:.\-/]*")
_UNFIT_IN_NAME = re.compile(r"[^A-Za-z0-9_:.\-/]")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_UNFIT_IN_LABEL = re.compile(r"[^A-Za-z0-9_.]")
_PAIR = re.compile(r'([A-Za-z_][A-Za-z0-9_.]*)="((?:[^"\\\n]|\\[\\"n])*)"')
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
_UNESCAPES = {written: char for char, written in _ESCAPES.items()}
_ESCAPED, _ESCAPE = re.compile(r'[\\"\n]'), re.compile(r"\\.")


def write_series(name: str, labels: Mapping[str, str]) -> str:
    """The text of a series.

    Raises:
        ValueError: a name, a label or a value is not fit; see `fit_name`, `fit_label`, `fit_value`.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is no metric name: letters, digits and _ : . - /")
    for label, value in labels.items():
        if not _LABEL.fullmatch(label) or fit_value(value) != value:
            raise ValueError(f"{label[:80]!r} of {name} is no label name, or its value is not fit for one")
    pairs = (f'{label}="{_ESCAPED.sub(_escaped, labels[label])}"' for label in sorted(labels))
    inner = ",".join(pairs)
    return f"{name}{{{inner}}}" if inner else name


def parse_series(text: str, *, name_chars: int = NAME_CHARS, most_labels: int = LABELS) -> tuple[str, dict[str, str]]:
    """Name and labels of a text, its labels in any order.

    Raises:
        ValueError: it is none that `write_series` could have written, but for that order, or is beyond a limit.
    """
    name, brace, rest = text.partition("{")
    labels: dict[str, str] = {}
    if brace:
        at = 0
        while (pair := _PAIR.match(rest, at)) and pair[1] not in labels and len(labels) < most_labels:
            labels[pair[1]] = _ESCAPE.sub(_unescaped, pair[2])
            at = pair.end()
            if rest[at : at + 1] != ",":
                break
            at += 1
        if not labels or rest[at:] != "}" or rest[at - 1] == ",":
            raise ValueError(f'{text[:80]!r} is no series: name{{label="value",…}} with {most_labels} labels at most')
    if len(name) > name_chars or any(len(label) > LABEL_CHARS for label in labels):
        raise ValueError(f"{text[:80]!r} has a name beyond {name_chars} or a label beyond {LABEL_CHARS} characters")
    write_series(name, labels)
    return name, labels


def fit_name(text: str) -> str:
    """The text as a metric name: what cannot stand in one becomes `_`."""
    made = _UNFIT_IN_NAME.sub("_", text[:NAME_CHARS])
    return made if _NAME.fullmatch(made) else f"_{made}"[:NAME_CHARS]


def fit_label(text: str) -> str:
    """The text as a label's name, likewise."""
    made = _UNFIT_IN_LABEL.sub("_", text[:LABEL_CHARS])
    return made if _LABEL.fullmatch(made) else f"_{made}"[:LABEL_CHARS]


def fit_value(text: str) -> str:
    """The text as a label's value: without lone surrogates, which have no UTF-8, and cut where it is too long."""
    if len(text) > VALUE_CHARS:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        text = f"{text[: VALUE_CHARS - 17]}~{digest}"
    return text.encode("utf-8", "replace").decode("utf-8")


def _escaped(found: re.Match[str]) -> str:
    return _ESCAPES[found[0]]


def _unescaped(found: re.Match[str]) -> str:
    return _UNESCAPES[found[0]]
