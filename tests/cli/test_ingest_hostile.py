"""`spanlite ingest` on recordings whose records or names are garbage, but whose form is right."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from prometheus_client.parser import text_string_to_metric_families

from spanlite.cli.embedded import Embedded, open_source
from spanlite.cli.main import main
from spanlite.exporters.families import families
from spanlite.exporters.formats import choose
from spanlite.exporters.table import PointTable
from spanlite.pipeline.embedded import Outputs
from spanlite.pipeline.windows import WindowPolicy
from tests.cli.expected import brute_force, points_by_key
from tests.cli.recorded import raw, works

SMALL = "streams-cupti130500"
BASE = raw(SMALL)
KERNELS = list(dict.fromkeys(BASE.records[10]["name"].tolist()))
HOSTILE = {
    "quotes": "a\"b\\c'd",
    "line ends": "a\nb\r\nc\u2028d",
    "NUL": "a\0b",
    "a megabyte": "x" * 1_000_000,
    "a lone surrogate": "a\ud800b",
    "emoji": "🔥 kernel 🔥",
    "markup": "[/red][bold]x",
    "an exposition of its own": '"} 1\n# EOF\n',
    "nothing": "",
    "escapes": "\x1b[31mred\x1b[0m",
}


def written(folder: Path, data: bytes = BASE.data, **changes: Any) -> Path:
    """A recording of these bytes, the description changed."""
    path = folder / "x.bin"
    path.write_bytes(data)
    (folder / "x.json").write_text(json.dumps({**BASE.about, **changes}))  # a lone surrogate becomes \ud800
    return path


def renamed(folder: Path, name: str) -> Path:
    """The recording with one kernel called `name`."""
    return written(folder, names={**BASE.about["names"], str(KERNELS[0]): name})


def ingested(folder: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], dict[str, Any]]:
    """Points and account; the run must end well."""
    outputs = (f"--points={folder / 'points'}", f"--archive={folder / 'archive'}", "--window=1s")
    assert main(["ingest", str(path), *outputs, "--json"]) == 0
    return (folder / "points").read_text().splitlines(), json.loads(capsys.readouterr().out)


def archived(folder: Path, columns: str) -> list[tuple[Any, ...]]:
    """Rows of the archive."""
    rows: list[tuple[Any, ...]] = (
        duckdb.read_parquet(f"{folder}/archive/date=*/**/*.parquet").project(columns).fetchall()
    )
    return rows


@pytest.mark.parametrize("case", list(HOSTILE))
def test_any_name_reaches_points_and_archive(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that the full name is kept as far as UTF-8 and 64 KiB allow, under an id of printable ASCII."""
    name = HOSTILE[case]
    executions = int((BASE.records[10]["name"] == KERNELS[0]).sum())
    points, account = ingested(tmp_path, renamed(tmp_path, name), capsys)
    assert account["spans_sent"] == len(works(SMALL))
    old = set(BASE.about["names"].values())
    (kept,) = {row[0] for row in archived(tmp_path, "name")} - old - {"memcpy_host_to_device", "memcpy_device_to_host"}
    assert kept == name.replace("\ud800", "?") if len(name) < 1000 else kept[:65_000] == name[:65_000]
    assert len(kept.encode()) <= 65_536
    mine = [json.loads(line) for line in points if json.loads(line)["labels"]["name"] == kept]
    assert sum(point["count"] for point in mine) == executions
    (kernel,) = {point["labels"]["kernel"] for point in mine}
    assert kernel.isascii()
    assert kernel.isprintable()
    assert 0 < len(kernel) <= 96


@pytest.mark.parametrize("case", list(HOSTILE))
def test_metrics_of_any_name_parse(case: str, tmp_path: Path) -> None:
    """Proves that the text exposition of a run with the name, as kernel, stage's workload and GPU, can be read back."""
    name = HOSTILE[case]
    names = {**BASE.about["names"], str(KERNELS[0]): name}
    path = written(tmp_path, names=names, scenario=name, props={**BASE.about["props"], "name": name})
    table = PointTable()
    outputs = Outputs(total_points=table.put, batch=lambda batch: table.gpu_info(batch.gpus, "h"))
    with Embedded(outputs, policy=WindowPolicy(lateness_ns=None)) as embedded:
        embedded.play(open_source(path))
    text = choose("text/plain").write(families(table.snapshot())).decode()
    launches = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "spanlite_kernel_launches_total"
    ]
    assert sum(launches) == len(BASE.records[10])


def test_names_that_are_missing_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that kernels whose name was not recorded are counted under a name that says so."""
    _, account = ingested(tmp_path, written(tmp_path, names={}), capsys)
    assert account["spans_sent"] == len(works(SMALL))
    assert {name for (name,) in archived(tmp_path, "name") if not name.startswith("memcpy")} == {"unnamed"}


START, END = 16, 24
Change = Callable[[int, int], tuple[int, int]]
GARBAGE: dict[str, tuple[Change, str]] = {
    "no start": (lambda _start, end: (0, end), "zero_timestamp"),
    "no end": (lambda start, _end: (start, 0), "zero_timestamp"),
    "neither": (lambda _start, _end: (0, 0), "zero_timestamp"),
    "end before start": (lambda start, _end: (start, start - 1), "negative_duration"),
    "no length": (lambda start, _end: (start, start), "zero_duration"),
    "2^63": (lambda start, _end: (start, 1 << 63), "sentinel"),
    "all ones": (lambda _start, _end: ((1 << 64) - 1, (1 << 64) - 1), "sentinel"),
    "1970": (lambda _start, _end: (1_000, 2_000), "implausible_clock"),
    "a week ahead": (lambda start, _end: (start + 7 * 86_400 * 10**9, start + 8 * 86_400 * 10**9), "implausible_clock"),
}


def patched(cases: dict[int, str]) -> bytes:
    """The bytes with the times of kernels, by their number, replaced."""
    data = bytearray(BASE.data)
    for number, case in cases.items():
        at = BASE.offsets[10][number]
        start, end = struct.unpack_from("<QQ", data, at + START)
        struct.pack_into("<QQ", data, at + START, *GARBAGE[case][0](start, end))
    return bytes(data)


def test_garbage_times_are_dropped_by_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that each kind of garbage is counted under its reason, and that points and archive hold just the rest."""
    cases = {100 * at + extra: case for at, case in enumerate(GARBAGE) for extra in range(at + 1)}
    points, account = ingested(tmp_path, written(tmp_path, patched(cases)), capsys)
    expected: dict[str, int] = {}
    for case in cases.values():
        expected[GARBAGE[case][1]] = expected.get(GARBAGE[case][1], 0) + 1
    assert account["spans_dropped"] == expected
    all_works = works(SMALL)  # kernels first, in order of the bytes
    assert account["spans_received"] == len(all_works)
    assert account["spans_sent"] == len(all_works) - len(cases)
    good = [work for number, work in enumerate(all_works) if number not in cases]
    assert points_by_key(points, 10**9) == brute_force(good, 10**9)
    assert archived(tmp_path, "count(*)") == [(len(good),)]


def test_a_recording_of_nothing_but_garbage_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that no window is made up when every time is zero."""
    data = bytearray(BASE.data)
    for kind in (1, 10):
        for at in BASE.offsets[kind]:
            data[at + START : at + START + 16] = bytes(16)
    points, account = ingested(tmp_path, written(tmp_path, bytes(data)), capsys)
    assert account["spans_dropped"] == {"zero_timestamp": len(works(SMALL))}
    assert points == []


def test_what_cupti_dropped_is_in_the_account_and_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Proves that records that CUPTI said it lost make the run one with losses: exit code 3."""
    path = written(tmp_path, dropped=17)
    assert main(["ingest", str(path), f"--points={tmp_path / 'points'}", "--json"]) == 3
    account = json.loads(capsys.readouterr().out)
    assert account["spans_dropped"] == {"cupti": 17}
    assert account["spans_received"] == account["spans_sent"] + 17
