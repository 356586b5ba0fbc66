"""Kernels by GPU time, against DuckDB and numpy."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from spanlite.contract.batch import Batch
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Kind, make_columns
from spanlite.pipeline.archive.write import write_batches
from spanlite.pipeline.summary import CONFIG_KEY, HEADER, summarize, to_csv

SLICE = Path(__file__).parents[1] / "data" / "serve_slice.parquet"
LAUNCH_FIELDS = tuple(CONFIG.fields or ())[2:]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 19,999 kernels of a recorded serving run in two stages, and one copy."""
    table = pq.read_table(SLICE)
    names = table["kernel"].to_pylist()
    strings = ("", "prefill", "decode", *dict.fromkeys(names))
    configs = np.zeros(len(table), dtype=CONFIG)
    for name in table.column_names:
        if name in LAUNCH_FIELDS:
            configs[name] = table[name].to_numpy()
    configs["kernel"] = configs["name"] = [strings.index(name) for name in names]
    rows = np.arange(len(table))
    columns = make_columns(
        table["start_ns"].to_numpy(),
        table["duration_ns"].to_numpy(),
        tables=(strings, configs, np.zeros(1, PLACE), np.zeros(1, NODE), np.zeros(0, TRACE)),
        kind=np.where(rows == rows[-1], Kind.MEMCPY, Kind.KERNEL),
        config=rows,
        stage=1 + rows % 2,
    )
    folder = tmp_path_factory.mktemp("archive")
    write_batches(folder, [Batch(bytes(16), 0, 1, 0, 0, columns, {})])
    return folder


def test_figures_equal_those_of_duckdb(archive: Path) -> None:
    """Total, count, mean, median, minimum, maximum and sample deviation of each kernel, in the order of time."""
    query = """select name, sum(duration_ns)::bigint, count(*), avg(duration_ns), median(duration_ns), min(duration_ns),
        max(duration_ns), coalesce(stddev_samp(duration_ns), 0) from read_parquet($files)
        where kind = 'kernel' group by name order by 2 desc, 1"""
    rows = duckdb.execute(query, {"files": f"{archive}/**/*.parquet"}).fetchall()
    lines = summarize(archive, pretty=False)
    assert [(x.name, x.total_ns, x.instances, x.min_ns, x.max_ns) for x in lines] == [
        (row[0], row[1], row[2], row[5], row[6]) for row in rows
    ]
    ours = [(x.mean_ns, x.median_ns, x.deviation_ns) for x in lines]
    np.testing.assert_allclose(ours, [(row[3], row[4], row[7]) for row in rows], rtol=1e-12)
    assert sum(line.share_percent for line in lines) == pytest.approx(100)


def test_groups_by_stage_and_configuration_add_up(archive: Path) -> None:
    """Whatever splits the kernels, instances and time stay; keys are the columns asked for."""
    whole = summarize(archive)
    for by in (("stage",), CONFIG_KEY):
        lines = summarize(archive, by=by)
        assert len(lines) > len(whole)
        assert sum(line.instances for line in lines) == 19_999
        assert sum(line.total_ns for line in lines) == sum(line.total_ns for line in whole)
        assert {len(line.key) for line in lines} == {len(by)}
    assert {line.key for line in summarize(archive, by=("stage",))} == {("prefill",), ("decode",)}


def test_other_kinds_are_apart(archive: Path) -> None:
    """The one copy: its deviation is 0, its median is its duration."""
    (line,) = summarize(archive, kind="memcpy")
    assert (line.instances, line.deviation_ns) == (1, 0.0)
    assert line.median_ns == line.mean_ns == line.min_ns == line.max_ns == line.total_ns
    assert summarize(archive, kind="memset") == ()


def test_csv_has_the_columns_of_nsys(archive: Path) -> None:
    """The header is that of cuda_gpu_kern_sum; names with commas and quotes stay one field."""
    lines = summarize(archive)
    rows = list(csv.reader(io.StringIO(to_csv(lines))))
    assert ",".join(rows[0]) == (
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"
    )
    assert [row[-1] for row in rows[1:]] == [line.name for line in lines]
    assert any("," in row[-1] for row in rows[1:])
    first = lines[0]
    assert rows[1][:8] == [
        f"{first.share_percent:.1f}",
        str(first.total_ns),
        str(first.instances),
        f"{first.mean_ns:.1f}",
        f"{first.median_ns:.1f}",
        str(first.min_ns),
        str(first.max_ns),
        f"{first.deviation_ns:.1f}",
    ]


def test_keys_stand_before_the_name(archive: Path) -> None:
    """So the name is the last column, as in nsys."""
    header = next(csv.reader(io.StringIO(to_csv(summarize(archive, by=("stage",)), ("stage",)))))
    assert header == [*HEADER[:-1], "stage", "Name"]
