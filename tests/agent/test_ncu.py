"""Reading Nsight Compute's CSV in the shapes it comes in, and refusing what it is not."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from spanlite.agent.ncu import CONFIG, DYNAMIC, REGISTERS, STATIC, read_ncu_csv
from spanlite.agent.ncu_compare import Difference, compare
from spanlite.contract.errors import RecordingError, UsageError

RECORDED = Path(__file__).parents[1] / "data" / "ncu_occupancy.csv"


def recorded() -> list[list[str]]:
    """Header, units and the first eleven launches of the recording."""
    return list(csv.reader(io.StringIO(RECORDED.read_text(encoding="utf-8"))))[:13]


def text_of(table: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "ncu.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def with_cell(row: int, column: str, value: str) -> list[list[str]]:
    table = recorded()
    table[row][table[0].index(column)] = value
    return table


def without(*columns: str) -> list[list[str]]:
    table = recorded()
    keep = [index for index, name in enumerate(table[0]) if name not in columns]
    return [[row[index] for index in keep] for row in table]


def test_every_figure_of_the_recording_is_confirmed() -> None:
    """141 launches on an H200, each of ncu's nine figures equal to the model's."""
    launches = read_ncu_csv(RECORDED)
    assert len(launches.kernels) == 141
    assert compare(launches) == []


def test_columns_are_read_as_ncu_printed_them() -> None:
    """Line numbers, capability, block and sizes of the fourth launch (a cluster kernel) are the file's."""
    launches = read_ncu_csv(RECORDED)
    assert (launches.lines[0], launches.lines[-1]) == (3, 143)
    assert launches.kernels[3] == "nvjet_sm90_tst_96x128_64x7_2x1_v_bz_TNN"
    assert launches.capabilities[3].tolist() == [9, 0]
    assert launches.threads[2:4].tolist() == [32 * 4, 384]
    values = [launches.numbers[name].values[3] for name in (REGISTERS, STATIC, DYNAMIC, CONFIG)]
    assert values == [168, 0, 217356, 233472]
    assert not launches.numbers[DYNAMIC].slack.any()


def shape_bom(table: list[list[str]]) -> bytes:
    return b"\xef\xbb\xbf" + text_of(table).encode()


def shape_crlf(table: list[list[str]]) -> bytes:
    return text_of(table).replace("\n", "\r\n").encode()


def shape_powershell(table: list[list[str]]) -> bytes:
    return text_of(table).replace("\n", "\r\n").encode("utf-16")


def shape_chatter(table: list[list[str]]) -> bytes:
    before = '==PROF== Connected to process 71 (python3.11)\nloss 0.1 "unbalanced\nstep\r1\n\n'
    return (before + text_of(table) + "==PROF== Disconnected from process 71\n\n").encode()


def shape_no_units(table: list[list[str]]) -> bytes:
    return text_of([table[0], *table[2:]]).encode()


def shape_other_order(table: list[list[str]]) -> bytes:
    return text_of([["9" if index else "ID", *row[::-1]] for index, row in enumerate(table)]).encode()


def shape_thousands(table: list[list[str]]) -> bytes:
    return text_of([[f"{int(c):,}" if c.isdigit() else c for c in row] for row in table]).encode()


@pytest.mark.parametrize(
    "shape",
    [
        shape_bom,
        shape_crlf,
        shape_powershell,
        shape_chatter,
        shape_no_units,
        shape_other_order,
        shape_thousands,
    ],
)
def test_the_same_launches_in_another_shape_read_the_same(tmp_path: Path, shape: object) -> None:
    """A byte order mark, line ends, chatter, no units, other order or thousands separators change no number."""
    assert callable(shape)
    plain = read_ncu_csv(written(tmp_path, text_of(recorded())))
    shaped = read_ncu_csv(written(tmp_path, shape(recorded())))
    assert shaped.kernels == plain.kernels
    np.testing.assert_array_equal(shaped.threads, plain.threads)
    np.testing.assert_array_equal(shaped.capabilities, plain.capabilities)
    assert shaped.numbers.keys() == plain.numbers.keys()
    for name, numbers in plain.numbers.items():
        np.testing.assert_array_equal(shaped.numbers[name].values, numbers.values, err_msg=name)
    assert compare(shaped) == []


def scaled(table: list[list[str]], columns: tuple[str, ...]) -> list[list[str]]:
    """Byte columns the way ncu prints them by default: Kbyte of 1000, two decimals, none where the number is whole."""
    for name in columns:
        at = table[0].index(name)
        table[1][at] = table[1][at].replace("byte", "Kbyte", 1)
        for row in table[2:]:
            value = f"{int(row[at]) / 1000:.2f}"
            row[at] = value.removesuffix(".00")
    return table


BYTE_COLUMNS = (
    STATIC,
    DYNAMIC,
    CONFIG,
    "launch__shared_mem_per_block_driver",
    "launch__shared_mem_per_block_allocated",
)


def test_scaled_and_rounded_units_still_agree(tmp_path: Path) -> None:
    """217.36 Kbyte may be 217,355 to 217,365 bytes; no figure of the whole recording is held against that."""
    table = list(csv.reader(io.StringIO(RECORDED.read_text(encoding="utf-8"))))
    launches = read_ncu_csv(written(tmp_path, text_of(scaled(table, BYTE_COLUMNS))))
    assert launches.numbers[DYNAMIC].values[3] == 217360
    assert launches.numbers[DYNAMIC].slack[3] == 5
    assert compare(launches) == []


def test_a_wrong_figure_is_found_in_scaled_units_too(tmp_path: Path) -> None:
    """The slack of rounding is no licence: one allocation unit off is a difference."""
    table = scaled(recorded(), BYTE_COLUMNS)
    name = "launch__shared_mem_per_block_allocated"
    table[2][table[0].index(name)] = "1.15"
    (difference,) = compare(read_ncu_csv(written(tmp_path, text_of(table))))
    assert (difference.field, difference.ours, difference.theirs) == (name, 1024, 1150)


def test_megabytes_are_a_million_bytes(tmp_path: Path) -> None:
    """ncu's prefixes are decimal."""
    table = with_cell(1, CONFIG, "Mbyte")
    for row in table[2:]:
        row[table[0].index(CONFIG)] = "0.032768"
    assert read_ncu_csv(written(tmp_path, text_of(table))).numbers[CONFIG].values.tolist() == [32768.0] * 11


@pytest.mark.parametrize(
    ("column", "value", "ours", "theirs"),
    [
        ("launch__occupancy_limit_registers", "5", 4, 5),
        ("launch__occupancy_limit_barriers", "64", 32, 64),
        ("launch__registers_per_thread_allocated", "64", 56, 64),
        ("sm__maximum_warps_per_active_cycle_pct", "50.02", 50, 50.02),
    ],
)
def test_a_figure_that_differs_is_reported_once(
    tmp_path: Path, column: str, value: str, ours: float, theirs: float
) -> None:
    """Line, kernel, field and both values of exactly the altered cell."""
    table = with_cell(2, column, value)
    kernel = table[2][0]
    assert compare(read_ncu_csv(written(tmp_path, text_of(table)))) == [Difference(3, kernel, column, ours, theirs)]


def test_two_decimals_of_a_percentage_are_enough(tmp_path: Path) -> None:
    """21 warps of 64 are 32.8125 %, which ncu prints as 32.81."""
    table = with_cell(2, "sm__maximum_warps_per_active_cycle_pct", "32.81")
    for column, value in ((REGISTERS, "72"), ("Block Size", "(672, 1, 1)")):
        table[2][table[0].index(column)] = value
    differences = compare(read_ncu_csv(written(tmp_path, text_of(table))))
    assert "sm__maximum_warps_per_active_cycle_pct" not in {difference.field for difference in differences}


def test_without_barrier_counts_their_limit_is_not_compared(tmp_path: Path) -> None:
    """The limit by barriers follows from the count alone; the other figures still count."""
    table = without("launch__barrier_count", "launch__cluster_size", "launch__shared_mem_per_block_driver")
    assert compare(read_ncu_csv(written(tmp_path, text_of(table)))) == []


def test_a_figure_that_ncu_could_not_give_is_not_compared(tmp_path: Path) -> None:
    """n/a is no number and no difference."""
    table = with_cell(2, "launch__occupancy_limit_warps", "n/a")
    table[3][table[0].index("launch__occupancy_limit_warps")] = ""
    assert compare(read_ncu_csv(written(tmp_path, text_of(table)))) == []


def test_launches_of_several_gpus_are_each_held_to_their_own_limits(tmp_path: Path) -> None:
    """The same launch on 8.6: 16 block slots and 48 warps instead of 32 and 64, and no barrier limit."""
    launches = read_ncu_csv(written(tmp_path, text_of(with_cell(2, "CC", "8.6"))))
    found = {difference.field: (difference.line, difference.ours) for difference in compare(launches)}
    assert found == {
        "launch__occupancy_limit_warps": (3, 6),
        "launch__occupancy_limit_blocks": (3, 16),
        "launch__occupancy_limit_barriers": (3, 16),
        "sm__maximum_warps_per_active_cycle_pct": (3, pytest.approx(100 * 32 / 48)),
    }


def test_an_unknown_capability_names_its_line(tmp_path: Path) -> None:
    """A capability without limits is no difference but an error."""
    launches = read_ncu_csv(written(tmp_path, text_of(with_cell(4, "CC", "6.1"))))
    with pytest.raises(UsageError, match=r"line 5: .*capability 6\.1; known are 7\.0"):
        compare(launches)


def test_missing_columns_are_named_with_the_way_to_collect_them(tmp_path: Path) -> None:
    """Both missing names and the ncu call that prints them."""
    path = written(tmp_path, text_of(without("CC", CONFIG)))
    with pytest.raises(RecordingError, match=rf"missing columns CC, {CONFIG}; collect with: ncu --csv --page raw .*"):
        read_ncu_csv(path)


def test_a_file_without_any_figure_is_refused(tmp_path: Path) -> None:
    """Nothing to compare is not all equal."""
    table = recorded()
    figures = [name for name in table[0] if "limit" in name or "allocated" in name or "driver" in name]
    path = written(tmp_path, text_of(without(*figures, "sm__maximum_warps_per_active_cycle_pct")))
    with pytest.raises(RecordingError, match="no figure of ncu's to compare with; collect with: ncu"):
        read_ncu_csv(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no header of an Nsight Compute CSV"),
        ("name,value\nx,1\n", "no header of an Nsight Compute CSV"),
        ('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n', "details page.*--page raw"),
        (b"PK\x03\x04\xff\xfe\x00\x81", r"not text; a report \(.ncu-rep\) becomes CSV with: ncu --import"),
    ],
)
def test_what_is_no_raw_page_is_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    """Each message says what the file is not and what to do."""
    with pytest.raises(RecordingError, match=message):
        read_ncu_csv(written(tmp_path, content))


def test_a_header_without_launches_is_refused(tmp_path: Path) -> None:
    """No launches is not all equal."""
    with pytest.raises(RecordingError, match="a header but no launches"):
        read_ncu_csv(written(tmp_path, text_of(recorded()[:2])))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (REGISTERS, "many", rf"line 6, column {REGISTERS}: 'many' is not a number ≥ 0"),
        (STATIC, "", rf"line 6, column {STATIC}: '' is not a number"),
        (DYNAMIC, "-1", rf"line 6, column {DYNAMIC}: '-1' is not a number"),
        (CONFIG, "nan", rf"line 6, column {CONFIG}: 'nan' is not a number"),
        ("launch__occupancy_limit_warps", "inf", "line 6, column launch__occupancy_limit_warps: 'inf'"),
        ("CC", "nine", r"line 6, column CC: 'nine' is not like 9\.0"),
        ("Block Size", "(1, 2, 3, 4)", r"line 6, column Block Size: '\(1, 2, 3, 4\)' is not like \(128, 1, 1\)"),
    ],
)
def test_a_bad_cell_is_named_by_line_and_column(tmp_path: Path, column: str, value: str, message: str) -> None:
    """The place and the text of the cell are in the message."""
    with pytest.raises(RecordingError, match=message):
        read_ncu_csv(written(tmp_path, text_of(with_cell(5, column, value))))


def test_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    """A size in a unit nobody knows is not taken for bytes."""
    with pytest.raises(RecordingError, match=f"column {DYNAMIC} is in 'sector'; known are byte, Kbyte"):
        read_ncu_csv(written(tmp_path, text_of(with_cell(1, DYNAMIC, "sector/block"))))


def test_a_cut_line_is_refused(tmp_path: Path) -> None:
    """A line that lost its end does not shift the columns."""
    with pytest.raises(RecordingError, match="line 13 has 20 fields where the header has 22"):
        read_ncu_csv(written(tmp_path, text_of([*recorded()[:12], recorded()[12][:20]])))


def test_a_line_that_is_no_csv_is_refused(tmp_path: Path) -> None:
    """What a progress bar wrote into the table is named by its line."""
    with pytest.raises(RecordingError, match="line 14 is not CSV: "):
        read_ncu_csv(written(tmp_path, text_of(recorded()) + "10%\r20%\n"))


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    """The path and the reason."""
    with pytest.raises(RecordingError, match=r"absent\.csv: No such file or directory; give a CSV file"):
        read_ncu_csv(tmp_path / "absent.csv")


def test_absurd_numbers_are_compared_not_crashed_on(tmp_path: Path) -> None:
    """A block of 999999999³ threads with 10¹⁵ registers cannot run; ncu's figures for it differ."""
    table = with_cell(2, "Block Size", "(999999999, 999999999, 999999999)")
    table[2][table[0].index(REGISTERS)] = "1000000000000000"
    table[2][table[0].index(DYNAMIC)] = "1000000000000000"
    differences = compare(read_ncu_csv(written(tmp_path, text_of(table))))
    ours = {difference.field: difference.ours for difference in differences}
    assert ours["launch__occupancy_limit_warps"] == ours["launch__occupancy_limit_registers"] == 0
    assert ours["sm__maximum_warps_per_active_cycle_pct"] == 0
