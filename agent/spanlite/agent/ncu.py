"""Nsight Compute's raw page as CSV: the launches it measured and its own occupancy figures.

Column names are ncu's metric names. ncu scales units by powers of 1000 and rounds to two decimals unless it is told
`--print-units base`, so every number carries how far off it may be.
"""

from __future__ import annotations

import codecs
import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.errors import RecordingError

if TYPE_CHECKING:
    from pathlib import Path

KERNEL: Final = "Kernel Name"
BLOCK: Final = "Block Size"
CAPABILITY: Final = "CC"
REGISTERS: Final = "launch__registers_per_thread"
STATIC: Final = "launch__shared_mem_per_block_static"
DYNAMIC: Final = "launch__shared_mem_per_block_dynamic"
CONFIG: Final = "launch__shared_mem_config_size"
BARRIERS: Final = "launch__barrier_count"
BARRIER_LIMIT: Final = "launch__occupancy_limit_barriers"
THEORETICAL: Final = "sm__maximum_warps_per_active_cycle_pct"

# ncu's figure → the column of Occupancy that must equal it; the theoretical occupancy is compared in percent.
FIGURES: Final = {
    "launch__occupancy_limit_warps": "blocks_by_warps",
    "launch__occupancy_limit_blocks": "blocks_by_blocks",
    "launch__occupancy_limit_registers": "blocks_by_registers",
    "launch__occupancy_limit_shared_mem": "blocks_by_shared_memory",
    BARRIER_LIMIT: "blocks_by_barriers",
    "launch__registers_per_thread_allocated": "registers_allocated",
    "launch__shared_mem_per_block_allocated": "shared_memory_allocated",
    "launch__shared_mem_per_block_driver": "shared_memory_driver",
    THEORETICAL: "ratio",
}
_INPUTS: Final = (REGISTERS, STATIC, DYNAMIC, CONFIG)
_REQUIRED: Final = (KERNEL, BLOCK, CAPABILITY, *_INPUTS)
_UNIT_SCALES: Final = {"byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9}
_ABSENT: Final = ("", "n/a", "(!) n/a")
HOW_TO_COLLECT: Final = (
    "collect with: ncu --csv --page raw --print-units base --metrics "
    + ",".join((*_INPUTS, BARRIERS, *FIGURES))
    + " PROGRAM"
)

FloatColumn = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Numbers:
    """One numeric column; NaN where ncu printed nothing."""

    values: FloatColumn
    slack: FloatColumn  # the true value lies within this distance


@dataclass(frozen=True, slots=True)
class NcuLaunches:
    """The launches of one CSV, all columns of one length."""

    lines: NDArray[np.int64]  # line of the file, from 1
    kernels: list[str]
    capabilities: NDArray[np.int64]  # shape (n, 2): major, minor
    threads: NDArray[np.int64]
    numbers: dict[str, Numbers]  # by column name, those present


def read_ncu_csv(path: Path) -> NcuLaunches:
    """Reads what `ncu --csv --page raw` printed, with or without its chatter and its row of units.

    Raises:
        RecordingError: no such file, not ncu's raw page, columns missing, or a number that is none.
    """
    header: list[str] | None = None
    scales: dict[str, float] = {}
    rows: list[tuple[int, dict[str, str]]] = []
    for number, text in enumerate(_read_text(path).split("\n"), start=1):
        if header is None:  # chatter of ncu and of the program, of any form
            header = _header(path, number, text)
            continue
        if not text.strip() or text.startswith("=="):  # ==PROF== and ==WARNING== lines
            continue
        cells = _cells(path, number, text)
        if len(cells) != len(header):
            raise RecordingError(f"{path}: line {number} has {len(cells)} fields where the header has {len(header)}")
        row = dict(zip(header, cells, strict=True))
        if not rows and not row.get(BLOCK) and not row.get(CAPABILITY):
            scales = _scales(path, row)
        else:
            rows.append((number, row))
    if header is None:
        raise RecordingError(f"{path}: no header of an Nsight Compute CSV (no column {KERNEL!r}); {HOW_TO_COLLECT}")
    _check_header(path, header)
    if not rows:
        raise RecordingError(f"{path}: a header but no launches; did ncu profile any kernel?")
    names = [name for name in (*_INPUTS, BARRIERS, *FIGURES) if name in header]
    return NcuLaunches(
        lines=np.array([number for number, _ in rows], dtype=np.int64),
        kernels=[row[KERNEL] for _, row in rows],
        capabilities=np.array([_capability(path, number, row) for number, row in rows], dtype=np.int64),
        threads=np.array([_threads(path, number, row) for number, row in rows], dtype=np.int64),
        numbers={name: _numbers(path, rows, name, scales.get(name, 1)) for name in names},
    )


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}; give a CSV file of Nsight Compute") from error
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # what PowerShell's redirection writes
    try:
        return data.decode("utf-16" if wide else "utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise RecordingError(
            f"{path}: not text; a report (.ncu-rep) becomes CSV with: ncu --import REPORT --csv --page raw"
        ) from error


def _header(path: Path, number: int, text: str) -> list[str] | None:
    cells = _cells(path, number, text) if KERNEL in text else []
    return cells if KERNEL in cells else None


def _cells(path: Path, number: int, text: str) -> list[str]:
    """The fields of one line; lines are read one by one, so a stray quote in chatter cannot swallow the table."""
    try:
        return [cell.strip() for cell in next(csv.reader([text]))]
    except csv.Error as error:
        raise RecordingError(f"{path}: line {number} is not CSV: {error}") from error


def _check_header(path: Path, header: list[str]) -> None:
    if "Metric Name" in header and "Metric Value" in header:
        raise RecordingError(f"{path}: this is ncu's details page, one row a metric; {HOW_TO_COLLECT}")
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        raise RecordingError(f"{path}: missing columns {', '.join(missing)}; {HOW_TO_COLLECT}")
    if not any(name in header for name in FIGURES):
        raise RecordingError(f"{path}: no figure of ncu's to compare with; {HOW_TO_COLLECT}")


def _scales(path: Path, units: dict[str, str]) -> dict[str, float]:
    scales: dict[str, float] = {}
    for name in (STATIC, DYNAMIC, CONFIG, *(name for name in FIGURES if "shared_mem_per" in name)):
        unit = units.get(name, "").partition("/")[0]
        if unit and unit not in _UNIT_SCALES:
            raise RecordingError(f"{path}: column {name} is in {unit!r}; known are {', '.join(_UNIT_SCALES)}")
        scales[name] = _UNIT_SCALES.get(unit, 1)
    return scales


def _numbers(path: Path, rows: list[tuple[int, dict[str, str]]], name: str, scale: float) -> Numbers:
    values, slack = np.full(len(rows), np.nan), np.zeros(len(rows))
    for index, (number, row) in enumerate(rows):
        text = row[name].replace(",", "")
        if text in _ABSENT and name not in _INPUTS:
            continue
        try:
            values[index] = float(text) * scale
        except ValueError:
            values[index] = np.nan
        if not 0 <= values[index] < 2**53:
            raise RecordingError(f"{path}: line {number}, column {name}: {row[name]!r} is not a number ≥ 0")
        decimals = len(text.partition(".")[2])
        if scale > 1 and decimals:  # ncu prints a whole number where it is one, else two decimals
            slack[index] = scale * 0.5 * 10.0**-decimals
    return Numbers(values, slack)


def _capability(path: Path, number: int, row: dict[str, str]) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", row[CAPABILITY])
    if match is None:
        raise RecordingError(f"{path}: line {number}, column {CAPABILITY}: {row[CAPABILITY]!r} is not like 9.0")
    return int(match[1]), int(match[2])


def _threads(path: Path, number: int, row: dict[str, str]) -> int:
    match = re.fullmatch(r"\(?(\d{1,9})(?:, ?(\d{1,9}))?(?:, ?(\d{1,9}))?\)?", row[BLOCK])
    if match is None:
        raise RecordingError(f"{path}: line {number}, column {BLOCK}: {row[BLOCK]!r} is not like (128, 1, 1)")
    return min(int(match[1]) * int(match[2] or 1) * int(match[3] or 1), 2**31 - 1)
