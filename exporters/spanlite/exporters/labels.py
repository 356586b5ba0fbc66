"""Label values that every exposition format and Prometheus's parsers take, whatever a name holds."""

from __future__ import annotations

import hashlib
import re

MAX_LENGTH = 200
"""Characters of a label value."""

# CUpti_ActivityMemcpyKind of cupti_activity.h, as directions: h host, d device, a array, p peer.
_DIRECTIONS = ("unknown", "h2d", "d2h", "h2a", "a2h", "a2a", "a2d", "d2a", "d2d", "h2h", "p2p")
# NUL ends Prometheus's text lexer, a lone surrogate has no UTF-8; newline, tab and quotes are escaped by the formats.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def label_value(text: str) -> str:
    """The text itself if it is short and fit; else a fit, cut form that ends in a hash of the whole.

    The hash keeps two names that differ only in what was replaced or cut apart.
    """
    if len(text) <= MAX_LENGTH and not _UNFIT.search(text):
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    suffix = f"~{digest}"
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text[: MAX_LENGTH - len(suffix)]) + suffix


def direction(copy_kind: int) -> str:
    """Direction of a copy as a label, by CUPTI's number of its kind."""
    return _DIRECTIONS[copy_kind] if 0 <= copy_kind < len(_DIRECTIONS) else _DIRECTIONS[0]
