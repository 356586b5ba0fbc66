"""Kernel tables: every row of a slice of a recorded one arrives, and files that are none are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanlite.agent.occupancy import occupancy, sm_limits
from spanlite.agent.tables import KernelTable
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.columns import Kind
from spanlite.contract.errors import RecordingError
from spanlite.contract.names import kernel_id
from spanlite.runtime.clock import ManualClock
from tests.agent.playing import Column, rows

_SLICE = Path(__file__).parents[1] / "data" / "serve_slice.parquet"


def _rows(path: Path) -> dict[str, Column]:
    """All rows, each batch encoded and decoded."""
    return rows(decode_batch(encode_batch(batch)) for batch in KernelTable(path).batches(ManualClock()))


def _write(path: Path, metadata: dict[bytes, bytes] | None = None, **columns: Any) -> Path:
    given: dict[str, Any] = {"start_ns": [10, 20], "duration_ns": [5, 6], "kernel": ["a", "b"], **columns}
    table = pa.table({name: values for name, values in given.items() if values is not None})
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path


def test_every_row_of_a_recorded_table_arrives() -> None:
    """20,000 rows in their order: times, names, launch configuration."""
    expected = pq.read_table(_SLICE)
    found = _rows(_SLICE)
    for column in (
        "start_ns",
        "duration_ns",
        "registers_per_thread",
        *(f"{w}_{a}" for w in ("grid", "block") for a in "xyz"),
    ):
        assert found[column].tolist() == expected.column(column).to_pylist(), column
    names = expected.column("kernel").to_pylist()
    assert found["name"].tolist() == names
    assert found["kernel"].tolist() == [kernel_id(name) for name in names]
    assert set(found["kind"].tolist()) == {Kind.KERNEL}
    assert len(np.unique(found["span"])) == 20_000


def test_occupancy_of_a_named_gpu_is_known() -> None:
    """The table says NVIDIA H200: occupancy is that of compute capability 9.0, row by row."""
    expected = pq.read_table(_SLICE)
    blocks = [expected.column(f"block_{axis}").to_numpy().astype(np.int64) for axis in "xyz"]
    model = occupancy(
        sm_limits(9, 0),
        threads_per_block=blocks[0] * blocks[1] * blocks[2],
        registers_per_thread=expected.column("registers_per_thread").to_numpy().astype(np.int64),
    )
    found = _rows(_SLICE)
    assert found["active_warps"].tolist() == model.active_warps.tolist()
    assert found["max_warps"].tolist() == [64] * 20_000
    assert found["limiter"].tolist() == model.limiter.tolist()


def test_reading_again_gives_the_same_batches() -> None:
    """Producer, session, numbers and bodies do not depend on when the file is read."""
    one, two = ([encode_batch(batch) for batch in KernelTable(_SLICE).batches(ManualClock())] for _ in range(2))
    assert one == two
    assert [decode_batch(value).sequence for value in one] == [0]
    assert [decode_batch(value).first_row for value in one] == [0]


def test_a_batch_says_what_the_file_says(tmp_path: Path) -> None:
    """Workload and GPUs come from the metadata; a place names its device's GPU."""
    about = b'{"scenario": "train", "gpu": "NVIDIA A100-SXM4 A100", "gpu_uuids": {"3": "GPU-three"}}'
    path = _write(
        tmp_path / "t.parquet", {b"scenario": about}, device_id=[3, 1], stream_id=[7, 8], correlation_id=[4, 5]
    )
    (batch,) = KernelTable(path).batches(ManualClock())
    assert batch.resource == {"host.name": "recorded", "workload": "train"}
    assert [(gpu.uuid, gpu.index, gpu.compute_major) for gpu in batch.gpus] == [
        ("GPU-unrecorded-1", 1, 8),
        ("GPU-three", 3, 8),
    ]
    found = _rows(path)
    assert found["gpu"].tolist() == [2, 1]
    assert found["device_id"].tolist() == [3, 1]
    assert found["stream_id"].tolist() == [7, 8]
    assert found["correlation"].tolist() == [4, 5]


def test_a_device_that_appears_late_joins_the_others(tmp_path: Path) -> None:
    """GPUs of earlier parts of a file stay listed, and each row names its own."""
    many = 70_000
    device = np.r_[np.zeros(66_000, np.int64), np.full(many - 66_000, 1)]
    path = _write(
        tmp_path / "t.parquet",
        start_ns=np.arange(1, many + 1),
        duration_ns=np.ones(many, np.int64),
        kernel=["k"] * many,
        device_id=device,
    )
    batches = list(KernelTable(path).batches(ManualClock()))
    assert [gpu.index for gpu in batches[0].gpus] == [0]
    assert [gpu.index for gpu in batches[-1].gpus] == [0, 1]
    found = rows(batches)
    assert np.array_equal(found["gpu"], device + 1)


def test_occupancy_of_an_unnamed_gpu_is_left_unknown(tmp_path: Path) -> None:
    """Without a GPU in the metadata there is nothing to compute with."""
    assert _rows(_write(tmp_path / "t.parquet", block_x=[32, 64]))["max_warps"].tolist() == [0, 0]


def test_rows_with_impossible_times_are_left_out_and_counted(tmp_path: Path) -> None:
    """Zero, negative and overflowing times, each by its reason; the good row stays with its name."""
    path = _write(
        tmp_path / "t.parquet",
        start_ns=[0, 10, 10, 10, 2**63 - 2],
        duration_ns=[5, 0, -1, 7, 100],
        kernel=["a", "b", "c", "d", "e"],
        grid_x=[1, 2, 3, 4, 5],
    )
    table = KernelTable(path)
    found = rows(table.batches(ManualClock()))
    assert found["name"].tolist() == ["d"]
    assert found["grid_x"].tolist() == [4]
    assert table.rejected == {"zero_timestamp": 1, "zero_duration": 1, "negative_duration": 1, "sentinel": 1}
    assert table.rows == 5


def test_a_table_without_rows_gives_no_batch(tmp_path: Path) -> None:
    """An empty file is no error."""
    path = _write(
        tmp_path / "t.parquet",
        start_ns=pa.array([], "i8"),
        duration_ns=pa.array([], "i8"),
        kernel=pa.array([], "string"),
    )
    assert list(KernelTable(path).batches(ManualClock())) == []


@pytest.mark.parametrize("name", ["start_ns", "duration_ns", "kernel"])
def test_a_table_that_lacks_a_column_is_refused(tmp_path: Path, name: str) -> None:
    """The message names the column."""
    path = _write(tmp_path / "t.parquet", **{name: None})
    with pytest.raises(RecordingError, match=rf"t\.parquet: not a kernel table: it has no column {name};"):
        KernelTable(path)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"start_ns": [1.5, 2.5]}, "column start_ns must hold whole numbers"),
        ({"start_ns": ["1", "2"]}, "column start_ns must hold whole numbers"),
        ({"duration_ns": [1, None]}, "column duration_ns must hold whole numbers without gaps"),
        ({"grid_x": [1, None]}, "column grid_x must hold whole numbers without gaps"),
        ({"grid_x": [1, -1]}, "column grid_x holds values outside 0 to 4294967295"),
        ({"device_id": [0, 2**32]}, "column device_id holds values outside 0 to 65535"),
        ({"kernel": [1, 2]}, "column kernel must hold texts"),
        ({"kernel": ["a", None]}, "column kernel must hold texts without gaps"),
    ],
)
def test_a_column_of_another_type_is_refused(tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    """The message names file and column and says what is due."""
    table = KernelTable(_write(tmp_path / "t.parquet", **columns))
    with pytest.raises(RecordingError, match=rf"t\.parquet: {said}"):
        list(table.batches(ManualClock()))


@pytest.mark.parametrize("about", [b"{", b"[1]", b"7", b'{"gpu_uuids": 5}'])
def test_metadata_that_is_no_object_is_refused(tmp_path: Path, about: bytes) -> None:
    """The key 'scenario' holds a JSON object."""
    path = _write(tmp_path / "t.parquet", {b"scenario": about})
    with pytest.raises(RecordingError, match="metadata key 'scenario' is no JSON object"):
        KernelTable(path)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "middle", "missing"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    """Whether the end or the middle is broken, the error names the file."""
    data = bytearray(_SLICE.read_bytes())
    data[200:60_000] = bytes(len(data[200:60_000])) if damage == "middle" else data[200:60_000]
    content = {"empty": b"", "text": b"start_ns,duration_ns\n", "cut": bytes(data[:-100]), "middle": bytes(data)}
    path = tmp_path / "t.parquet"
    if damage != "missing":
        path.write_bytes(content[damage])
    with pytest.raises(RecordingError, match=r"t\.parquet"):
        list(KernelTable(path).batches(ManualClock()))
