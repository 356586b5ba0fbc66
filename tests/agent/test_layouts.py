"""The layout of each CUPTI version, against NVIDIA's headers and what the recordings hold."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from spanlite.agent.layouts import KIND_LIMIT, NO_CUPTI, Kind, layout_for
from spanlite.contract.errors import LayoutError

_INCLUDE = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "include"

# sizeof of the structure that each release's cupti_activity.h names for a kind, by a C compiler (x86-64):
# version: memcpy, memset, kernel, API, marker, synchronization, external correlation.
_SIZES = {
    24: (88, 88, 208, 40, 56, 40, 24),
    26: (96, 88, 208, 40, 56, 56, 24),
    27: (96, 88, 208, 40, 56, 56, 24),
    28: (96, 88, 208, 40, 56, 56, 24),
    130000: (96, 88, 216, 40, 56, 56, 24),
    130001: (96, 88, 216, 40, 56, 56, 24),
    130100: (96, 88, 224, 40, 56, 56, 24),
    130101: (96, 88, 224, 40, 56, 56, 24),
    130200: (96, 88, 224, 40, 56, 56, 24),
    130201: (96, 88, 224, 40, 56, 56, 24),
    130300: (96, 88, 232, 40, 56, 56, 24),
    130301: (96, 88, 232, 40, 56, 56, 24),
    130400: (112, 104, 248, 40, 56, 56, 24),
    130401: (112, 104, 248, 40, 56, 56, 24),
    130500: (112, 104, 248, 40, 56, 56, 24),
}
# Likewise for kinds that are stepped over and changed between releases: kind → (first version, bytes), …
_CHANGED = {
    8: ((24, 184), (130200, 192)),
    9: ((24, 32), (130100, 40)),
    13: ((24, 32), (130000, 40)),
    25: ((24, 64), (26, 104)),
    36: ((24, 24), (26, 56), (130500, 80)),
    40: ((24, 136), (130200, 88)),
    50: ((24, 72), (130000, 80)),
    52: ((24, 64), (130100, 72)),
    59: ((130200, 152), (130201, 168), (130400, 304)),
}
# The C structure of each dtype that a version may choose.
_STRUCTS = {
    (24, Kind.KERNEL): "Kernel9",
    (130001, Kind.CONCURRENT_KERNEL): "Kernel10",
    (130201, Kind.CONCURRENT_KERNEL): "Kernel11",
    (130301, Kind.CONCURRENT_KERNEL): "Kernel12",
    (130500, Kind.CONCURRENT_KERNEL): "Kernel13",
    (24, Kind.MEMCPY): "Memcpy5",
    (130301, Kind.MEMCPY): "Memcpy6",
    (130400, Kind.MEMCPY): "Memcpy7",
    (130301, Kind.MEMSET): "Memset4",
    (130400, Kind.MEMSET): "Memset5",
    (24, Kind.SYNCHRONIZATION): "Synchronization",
    (130500, Kind.SYNCHRONIZATION): "Synchronization2",
    (130500, Kind.MARKER): "Marker2",
    (130500, Kind.RUNTIME): "API",
    (130500, Kind.EXTERNAL_CORRELATION): "ExternalCorrelation",
}


@pytest.mark.parametrize("version", _SIZES)
def test_decoded_kinds_have_the_size_of_the_release_header(version: int) -> None:
    """Each release's layouts are as long as its own header says."""
    memcpy, memset, kernel, api, marker, synchronization, external = _SIZES[version]
    layout = layout_for(version)
    assert {kind: dtype.itemsize for kind, dtype in layout.dtypes.items()} == {
        1: memcpy,
        2: memset,
        3: kernel,
        4: api,
        5: api,
        10: kernel,
        12: marker,
        38: synchronization,
        39: external,
    }
    assert layout.version == version


@pytest.mark.parametrize("version", _SIZES)
def test_skipped_kinds_have_the_size_of_the_release_header(version: int) -> None:
    """Kinds that are only stepped over change their length at the right release, or are unknown before it."""
    sizes = layout_for(version).sizes
    expected = {kind: [n for since, n in steps if since <= version][-1:] for kind, steps in _CHANGED.items()}
    assert {kind: [sizes[kind]] if kind in sizes else [] for kind in _CHANGED} == expected


def test_word_table_holds_every_size_and_ends_in_zero() -> None:
    """The walk's table is the size table in 4-byte words, 0 for kinds without a size."""
    layout = layout_for(130500)
    assert len(layout.words) == KIND_LIMIT + 1
    assert {kind: words * 4 for kind, words in enumerate(layout.words.tolist()) if words} == dict(layout.sizes)
    assert layout.words[-1] == 0


def test_unlisted_update_of_a_known_release_has_its_layout() -> None:
    """An update number does not change the release's layout."""
    assert layout_for(130599).dtypes == layout_for(130500).dtypes
    assert layout_for(130007).dtypes == layout_for(130001).dtypes


@pytest.mark.parametrize("version", [1, -1, 18, 25, 29, 129999, 130600, 140000])
def test_unknown_version_is_refused_by_name(version: int) -> None:
    """An unknown version is named together with those that are known."""
    with pytest.raises(LayoutError, match=rf"version {version} is unknown; known are 24, .*130000 to 130599"):
        layout_for(version)


def test_sizes_of_another_version_are_refused() -> None:
    """A file that states 13.0 but holds 13.5 records is told apart."""
    with pytest.raises(
        LayoutError, match="the file says 130001, whose kernel records are 216 bytes, its records are 248"
    ):
        layout_for(130001, {10: 248})
    with pytest.raises(LayoutError, match="whose memset records are 104 bytes, its records are 88"):
        layout_for(130500, {10: 248, 2: 88})
    with pytest.raises(LayoutError, match="whose kind-9 records are 40 bytes, its records are 32"):
        layout_for(130500, {9: 32})


def test_size_of_an_unknown_kind_is_taken_over() -> None:
    """A kind that spanlite does not know can be stepped over once its size is stated."""
    layout = layout_for(130500, {10: 248, 77: 64})
    assert layout.sizes[77] == 64
    assert 77 not in layout.dtypes
    assert 77 not in layout_for(130500).sizes


@pytest.mark.parametrize(
    ("kind", "size"), [(0, 8), (256, 8), (-1, 8), (77, 0), (77, 4), (77, 12), (77, -8), (77, 65544)]
)
def test_impossible_size_or_kind_is_refused(kind: int, size: int) -> None:
    """A size that would let the walk stand still, or leave the alignment, is refused."""
    with pytest.raises(LayoutError, match=f"kind {kind} of {size} bytes"):
        layout_for(130500, {kind: size})


def test_cupti_python_that_lacks_a_layout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older cupti-python has no dtype for newer records: the error says what to install."""
    monkeypatch.delattr("spanlite.agent.layouts.cupti.activity_kernel13_dtype")
    with pytest.raises(LayoutError, match=r"has no activity_kernel13_dtype: install cupti-python 13\.4 or newer"):
        layout_for(130500)


@pytest.mark.skipif(
    shutil.which("gcc") is None or not (_INCLUDE / "cupti_activity.h").is_file(),
    reason="needs gcc and the CUPTI headers",
)
def test_every_field_lies_where_the_c_compiler_puts_it(tmp_path: Path) -> None:
    """Offsets, widths and total sizes of all decoded layouts equal offsetof and sizeof of NVIDIA's structures."""
    lines, expected = [], []
    for (version, kind), struct in _STRUCTS.items():
        c, dtype = f"CUpti_Activity{struct}", layout_for(version).dtypes[kind]
        lines.append(f'printf("{struct} %zu\\n", sizeof({c}));')
        expected.append(f"{struct} {dtype.itemsize}")
        assert dtype.fields is not None
        for name in dtype.names or ():
            inner, at = dtype.fields[name][:2]
            member = _c_name(name)
            lines.append(
                f'printf("{struct}.{name} %zu %zu\\n", offsetof({c}, {member}), sizeof((({c} *)0)->{member}));'
            )
            expected.append(f"{struct}.{name} {at} {inner.itemsize}")
    (tmp_path / "crt").mkdir()
    # The one header that the CUPTI wheels lack: markers for the device compiler, empty for the host.
    words = ("__device_builtin__", "__cudart_builtin__", "__device_builtin_texture_type__", "__host__", "__device__")
    stub = [f"#define {word}" for word in (*words, "__device_builtin_surface_type__", "CUDARTAPI")]
    stub += [f"#define {word}(n) __attribute__((aligned(n)))" for word in ("__builtin_align__", "__align__")]
    (tmp_path / "crt" / "host_defines.h").write_text("\n".join(stub) + "\n")
    source = tmp_path / "offsets.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <cupti_activity.h>\nint main(void) {\n"
        + "\n".join(lines)
        + "}\n"
    )
    program = tmp_path / "offsets"
    stubs = ["-include", str(tmp_path / "crt" / "host_defines.h"), "-I", str(tmp_path)]
    subprocess.run(["gcc", "-w", *stubs, "-I", str(_INCLUDE), str(source), "-o", str(program)], check=True, timeout=60)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=10).stdout
    assert printed.splitlines() == expected


def _c_name(name: str) -> str:
    """The C member of a cupti-python field."""
    first, *rest = name.strip("_").split("_")
    camel = first + "".join(word[:1].upper() + word[1:] for word in rest)
    return {"channelId": "channelID", "localMemoryTotalV2": "localMemoryTotal_v2"}.get(camel, camel)


def test_a_client_without_cupti_has_a_layout_without_records() -> None:
    """Version 0 is allowed, so that it may connect; whatever bytes it sends are of an unknown kind."""
    layout = layout_for(NO_CUPTI)
    assert (layout.version, dict(layout.sizes), int(layout.words.sum())) == (0, {}, 0)
