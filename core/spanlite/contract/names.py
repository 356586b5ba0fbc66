"""Kernel names: full, demangled for people, and as bounded ids for labels.

An id is the function's plain name, without return type, template and call arguments, followed by `#` and eight hex
digits of a hash of the full name wherever something was left out. So it is short, readable, one-to-one with the full
name, and the same in every build: the hashes that nvcc puts into anonymous namespaces are taken out before hashing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache

ID_CHARS = 96
"""Longest id."""
NAME_BYTES = 64 << 10
"""Longest full name that is kept; a longer one is cut and ends in a hash of the whole."""
_DEMANGLED_CHARS = 4096
_DEMANGLED_MOST = 1 << 22
"""Longest text that demangling a name might give, if each two back references double it; recorded names: 0.5 MB."""
_REFERENCE = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
_MANGLED_PREFIX = re.compile(r"_Z(?:N[rVK]*)?(?:St)?")
_LENGTH = re.compile(r"[0-9]{1,4}")
_PLAIN = re.compile(r"[A-Za-z0-9_.$:~@-]+")
_BUILD_HASH = re.compile(r"(_GLOBAL__N__)[0-9a-f]{8}(_\d+_.+?_)[0-9a-f]{8}")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::")
_NUMBERED = re.compile(r"(?<!\s)\s*[:#=]\s*\d+$")
_UNSAFE = re.compile(r"[^\x20-\x7e]")


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced, so that it has a UTF-8 form, and at most NAME_BYTES long."""
    data = text.encode("utf-8", "replace")
    if len(data) > NAME_BYTES:
        data = data[: NAME_BYTES - 9] + b"#" + _hash(text).encode()
    return data.decode("utf-8", "ignore")


def demangle(name: str) -> str:
    """The name as C++ programmers write it; the name itself where it is not a mangled one (C, Triton, a range).

    Mangled names that could harm stay mangled, too: demanglers recurse, so that a long one overflows the stack, and
    each pair of back references can double the output, so that 300 characters make gigabytes.
    """
    if not name.startswith("_Z") or len(name) > _DEMANGLED_CHARS:
        return name
    doublings = len(_REFERENCE.findall(name)) // 2
    return name if len(name) << doublings > _DEMANGLED_MOST else _demangler()(name)


@lru_cache(maxsize=1)
def _demangler() -> Callable[[str], str]:
    """LLVM's demangler, or libstdc++'s on Python 3.10, for which there is no build of LLVM's."""
    bad_name: type[Exception] | tuple[type[Exception], ...]
    # They come with the extras: a consumer that needs no pretty names runs without.
    try:
        import pycxxfilt

        demangle_one, bad_name = pycxxfilt.demangle, ValueError
    except ImportError:
        import cxxfilt

        demangle_one, bad_name = cxxfilt.demangle, (cxxfilt.InvalidName, ValueError)

    def demangled(name: str) -> str:
        try:
            pretty = demangle_one(name)
        except bad_name:  # looks mangled, is not
            return name
        return str(pretty) if pretty else name

    return demangled


@lru_cache(maxsize=2048)
def kernel_id(name: str) -> str:
    """Bounded id of a kernel by its full name; ASCII, at most ID_CHARS long."""
    if len(name) <= ID_CHARS and not name.startswith("_Z") and _PLAIN.fullmatch(name):
        return name
    pretty = demangle(name)
    function = _mangled_function(name) if pretty == name else _function_name(_ANONYMOUS.sub("", pretty))
    short = _UNSAFE.sub("?", function)
    stable = _BUILD_HASH.sub(r"\g<1>\g<2>", name)
    return f"{short[: ID_CHARS - 9]}#{_hash(stable)}"


def stage_label(stage: str) -> str:
    """A stage as a metric label: a number behind `:`, `#` or `=` at the end, as in request:17, is left out.

    Programs number their requests and steps; a label value for each would grow without end. The archive keeps the
    whole name.
    """
    return _NUMBERED.sub("", stage) or stage


def _function_name(pretty: str) -> str:
    """`ns::f` of `void ns::f<int>(float) [clone .x]`."""
    kept: list[str] = []
    depth = 0
    for at, char in enumerate(pretty):
        if char == "<" and not pretty.endswith(("operator", "operator<"), 0, at):
            depth += 1
        elif char == ">" and depth:
            depth -= 1
        elif depth == 0:
            if char == "(" and "".join(kept[-8:]) != "operator":
                break
            kept.append(char)
        if len(kept) > 4 * ID_CHARS:
            break
    words = "".join(kept).split()
    return words[-1] if words else "kernel"


def _mangled_function(name: str) -> str:
    """`ns::f` of `_ZN2ns1fIiEEvT_`, read without a demangler: plain names up to the first template argument."""
    prefix = _MANGLED_PREFIX.match(name)
    if not prefix:
        return _function_name(name)
    parts: list[str] = []
    at = prefix.end()
    while (length := _LENGTH.match(name, at)) and sum(map(len, parts)) < ID_CHARS:
        at = length.end() + int(length.group())
        part = name[length.end() : at]
        if not part.startswith("_GLOBAL__N_"):
            parts.append(part)
    return "::".join(parts) or name


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=4).hexdigest()
