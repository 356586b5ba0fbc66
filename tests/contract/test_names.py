"""Kernel names and their ids: short, one-to-one, the same in every build, and safe with any text."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.names import ID_CHARS, NAME_BYTES, clean_text, demangle, kernel_id, stage_label

_DATA = Path(__file__).parents[1] / "data" / "h200"
_SAFE = re.compile(r"[\x21-\x7e]{1,96}")
_INDEX_SELECT = (
    "_ZN2at6native44_GLOBAL__N__50c743a2_11_Indexing_cu_89862edb21indexSelectSmallIndexIflLi2ELi2ELin2EEEvNS_4cuda"
    "6detail10TensorInfoIT_T0_EENS5_IKS6_S7_EENS5_IKT0_S7_EEiiS7_l"
)


def _recorded() -> list[str]:
    names = {name for path in _DATA.glob("*.json") for name in json.loads(path.read_text())["names"].values()}
    assert len(names) > 50
    return sorted(names)


def _bomb(levels: int) -> str:
    """A mangled name that says pair<X, X> of the pair before, `levels` times: its text doubles with each."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    references = ["S_", *(f"S{digits[at]}_" for at in range(36))]
    return "_Z1fSt4pairIiiE" + "".join(f"S_I{references[at]}{references[at]}E" for at in range(1, levels + 1))


def test_ids_of_all_recorded_names_are_bounded_and_differ() -> None:
    """Kernels and ranges of five recordings of an H200: as many ids as names."""
    names = _recorded()
    ids = [kernel_id(name) for name in names]
    assert len(set(ids)) == len(names)
    assert all(_SAFE.fullmatch(text) for text in ids)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("request:17", "request:17"),
        (_INDEX_SELECT, "at::native::indexSelectSmallIndex"),
        ("_Z3addPfS_i", "add"),
        ("_ZN2ns1CclEi", "ns::C::operator()"),
        ("_ZN2ns1ClsEi", "ns::C::operator<<"),
        ("_ZN2ns1CltEi", "ns::C::operator<"),
        ("_ZN2ns1CIiE3runIfEEvT_", "ns::C::run"),
        ("void ns::scale<float, 4>(float*, int)", "ns::scale"),
    ],
)
def test_ids_are_the_function_s_plain_name(name: str, expected: str) -> None:
    """Plain names stay as they are; others lose return type and arguments and get a hash."""
    assert kernel_id(name).split("#")[0] == expected
    assert (kernel_id(name) == name) == (name == expected)


def test_overloads_and_instances_get_ids_of_their_own() -> None:
    """What the readable part leaves out, the hash keeps apart."""
    names = [f"_Z1fILi{size}EEvPf" for size in range(500)] + ["_Z1fi", "_Z1fd", "_Z1fPf", "f"]
    assert len({kernel_id(name) for name in names}) == len(names)


def test_one_kernel_of_two_builds_has_one_id() -> None:
    """nvcc's hashes of file and build inside an anonymous namespace are not part of the kernel's identity."""
    rebuilt = _INDEX_SELECT.replace("50c743a2", "deadbeef").replace("89862edb", "01234567")
    assert rebuilt != _INDEX_SELECT
    assert kernel_id(rebuilt) == kernel_id(_INDEX_SELECT)
    other_file = _INDEX_SELECT.replace("Indexing_cu", "Scanning_cu")
    assert kernel_id(other_file) != kernel_id(_INDEX_SELECT)


def test_a_plain_name_cannot_pass_for_a_hashed_one() -> None:
    """A program that names its kernel like another one's id gets a different id."""
    taken = kernel_id("_Z1fi")
    assert kernel_id(taken) != taken


@pytest.mark.parametrize(
    "name",
    [
        *("", '"', "\n", "\x00", 'a"b\nc\\', "\ud800", "x\udfff", "核🔥", " ", "<" * 10**6, "(" * 10**6, "a" * 10**6),
        *("_Z", "_ZN", "_Z\ud800", "_Z3foo\x00v", "_Z9999x", "_Z" + "1f" * 500_000, "operator<", "a b", "-" * 97),
    ],
)
def test_hostile_names_get_safe_ids(name: str) -> None:
    """Quotes, newlines, NUL, lone surrogates, a megabyte: printable ASCII without spaces, 96 characters at most."""
    found = kernel_id(name)
    assert _SAFE.fullmatch(found)
    assert kernel_id(name) == found


@given(st.text(st.characters(), max_size=200))
def test_any_text_has_a_safe_id(name: str) -> None:
    """Every code point, surrogates included, in every place."""
    assert len(kernel_id(name)) <= ID_CHARS
    assert kernel_id(name).isascii()
    assert kernel_id(name).isprintable()


@pytest.mark.parametrize("name", ["main", "_Zebra", "_Z", "nvjet_sm90", "request:1", "", "_Z3fo", "Z3foov"])
def test_what_is_not_mangled_stays_as_it_is(name: str) -> None:
    """C names, Triton's, range texts, and what only begins like a mangled name."""
    assert demangle(name) == name


def test_mangled_names_read_as_programmers_write_them() -> None:
    """The Itanium ABI's own examples."""
    assert demangle("_Z1fv") == "f()"
    assert demangle("_Z1fi") == "f(int)"
    assert demangle("_ZN1N1fEv") == "N::f()"


@pytest.mark.parametrize(
    "name",
    ["_Z1f" + "P" * 60_000 + "i", "_Z1f" + "F" * 60_000 + "v", "_Z1f" + "N1aI" * 15_000 + "i" + "EE" * 15_000],
    ids=["pointers", "functions", "templates"],
)
def test_deeply_nested_names_do_not_overflow_the_stack(name: str) -> None:
    """They would crash the demangler, which recurses; such names stay mangled, and their ids readable."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend([demangle(name), kernel_id(name)]))
    thread.start()
    thread.join()
    assert found[0] == name
    assert found[1].startswith("f#")


@pytest.mark.parametrize("name", [_bomb(30), _bomb(16), "_Z1f3500" + "a" * 3500 + _bomb(12)[15:]])
def test_names_that_double_their_text_with_every_reference_stay_mangled(name: str) -> None:
    """315 characters would become 64 GB; a long identifier reaches hundreds of megabytes with fewer references."""
    assert len(name) < 3700
    assert demangle(name) == name
    assert kernel_id(name).startswith("f")


def test_names_with_a_harmless_number_of_references_are_demangled() -> None:
    """Ten doublings of a short name are 65 KB."""
    assert 65_000 < len(demangle(_bomb(10))) < 68_000  # libstdc++ writes `> >` where LLVM writes `>>`


def test_ids_of_names_too_risky_to_demangle_read_like_the_others() -> None:
    """The plain name is found without a demangler, too: the same for recorded names made too long to demangle."""
    for name in (name for name in _recorded() if name.startswith("_Z")):
        longer = name + "PPPP" * 1_024
        assert demangle(longer) == longer
        assert kernel_id(longer).split("#")[0] == kernel_id(name).split("#")[0]


@given(st.text(st.characters(), max_size=50))
def test_cleaned_text_has_a_utf_8_form(text: str) -> None:
    """Sound text is unchanged; lone surrogates become question marks."""
    cleaned = clean_text(text)
    assert cleaned == re.sub("[\ud800-\udfff]", "?", text)
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned


@pytest.mark.parametrize("text", ["x" * 10**6, "é" * 10**6, "🔥" * 10**6, "a" + "🔥" * 10**6, "ab" + "é" * 10**6])
def test_long_text_is_cut_and_keeps_a_hash_of_the_whole(text: str) -> None:
    """At most 64 KiB, never in the middle of a character, and different for texts that differ only at the end."""
    cleaned = clean_text(text)
    assert NAME_BYTES - 4 < len(cleaned.encode()) <= NAME_BYTES
    assert re.fullmatch(r".*#[0-9a-f]{8}", cleaned)
    assert text.startswith(cleaned[:-9])
    assert clean_text(text + "!") != cleaned


def test_text_at_the_limit_is_kept_whole() -> None:
    """64 KiB to the byte."""
    assert clean_text("x" * NAME_BYTES) == "x" * NAME_BYTES
    assert len(clean_text("x" * (NAME_BYTES + 1))) == NAME_BYTES


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("request:17", "request"),
        ("step = 3", "step"),
        ("layer#0", "layer"),
        ("decode", "decode"),
        ("fp8", "fp8"),
        ("a:1:2", "a:1"),
        ("12", "12"),
        ("", ""),
    ],
)
def test_numbers_at_the_end_of_a_stage_are_left_out(stage: str, expected: str) -> None:
    """One label for all requests of a program; numbers without a sign before them belong to the name."""
    assert stage_label(stage) == expected


@pytest.mark.parametrize("stage", [" " * 10**6, ":" * 10**6, ": " * 10**6, ":1" * 10**6 + "x", "1" * 10**6])
def test_long_stages_take_no_quadratic_time(stage: str) -> None:
    """A megabyte of what the rule looks for, without its end: would be hours, not milliseconds."""
    assert stage_label(stage) == stage
