"""`spanlite ingest`: points, archive and account of every recording, against the raw bytes read in plain Python."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanlite.cli.main import main
from tests.cli.expected import brute_force, points_by_key
from tests.cli.process import spanlite
from tests.cli.recorded import CONFIG, DATA, RECORDINGS, SLICE, raw, table_works, timeline, works

SECOND_NS = 10**9
FILES = {name: DATA / "h200" / f"{name}.bin.xz" for name in RECORDINGS} | {"table": SLICE}


@dataclass(frozen=True)
class Run:
    """What one ingest left: its source's name, its files, its account."""

    name: str
    points: Path
    archive: Path
    account: dict[str, Any]

    def select(self, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        """Rows of the archive, read by DuckDB."""
        files = duckdb.read_parquet(f"{self.archive}/date=*/**/*.parquet", hive_partitioning=True)
        rows: list[tuple[Any, ...]] = files.filter(where).project(columns).fetchall()
        return rows


def ingest(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    """The account of an ingest in this process; it must end well."""
    assert main(["ingest", *map(str, words), "--json"]) == 0
    account: dict[str, Any] = json.loads(capsys.readouterr().out)
    return account


@pytest.fixture(scope="module", params=list(FILES))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Each recording and the kernel table, put through with windows of a second."""
    folder = tmp_path_factory.mktemp(request.param)
    points, archive = folder / "points.jsonl", folder / "archive"
    outputs = (f"--points={points}", f"--archive={archive}")
    done = spanlite("ingest", FILES[request.param], *outputs, "--window=1s", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return Run(request.param, points, archive, json.loads(done.stdout))


def expected_works(name: str) -> list[Any]:
    return table_works() if name == "table" else works(name)


def test_points_equal_the_brute_force(run: Run) -> None:
    """Proves every window, label, count, sum, extreme and bucket of every series."""
    found = points_by_key(run.points.read_text().splitlines(), SECOND_NS)
    assert found == brute_force(expected_works(run.name), SECOND_NS)


def test_archived_executions_are_those_of_the_file(run: Run) -> None:
    """Proves kind, name, times, stage, launch configuration and place of every execution, read by another engine."""
    columns = ", ".join((*CONFIG, "copy_kind", "bytes", "correlation_id", "stream_id", "graph_id", "graph_node_id"))
    found = run.select(f"kind, name, start_ns, duration_ns, stage, {columns}", "kind <> 'range'")
    expected = [
        (w.kind, w.name, w.start_ns, w.duration_ns, w.stage or None, *w.launch, w.copy_kind, w.bytes, *w.place)
        for w in expected_works(run.name)
    ]
    assert Counter(found) == Counter(expected)


def test_archived_ranges_are_those_of_the_file(run: Run) -> None:
    """Proves name, start and length of every range that ended."""
    found = run.select("name, start_ns, duration_ns", "kind = 'range'")
    expected = [] if run.name == "table" else timeline(raw(run.name)).ranges
    assert sorted(found) == sorted(expected)


def test_the_account_says_where_every_span_went(run: Run) -> None:
    """Proves that nothing is lost or made up on the way, by the two sums of docs/metrics.md and the archive's."""
    account = run.account
    pipeline = account["pipeline"]
    spans = len(table_works()) if run.name == "table" else raw(run.name).spans
    assert account["spans_received"] == account["spans_sent"] == spans
    assert account["spans_dropped"] == {}
    ignored = pipeline["spans_ignored_total"]
    received = pipeline["spans_received_total"]["all"]
    folded = pipeline["spans_folded_total"]["all"]
    assert received == spans
    assert received == folded + ignored["range"] + ignored["duplicate"]
    assert folded == len(expected_works(run.name))
    assert pipeline["spans_archived_total"]["all"] == received - ignored["duplicate"]
    assert run.select("count(*)") == [(spans,)]
    unknown = sum(work.stage == "unknown" for work in expected_works(run.name))
    assert account["stage_unknown"] == unknown


def test_the_archive_holds_no_other_files(run: Run) -> None:
    """Proves that neither staging folders nor temporary files stay."""
    assert all(path.suffix == ".parquet" for path in run.archive.rglob("*") if path.is_file())
    assert {path.name.partition("=")[0] for path in run.archive.iterdir()} == {"date"}
    assert sorted(path.name for path in run.points.parent.iterdir()) == ["archive", "points.jsonl"]


def test_ingesting_again_replaces_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that a repeated run neither adds files nor spans, with several files an hour."""
    words = (FILES["stages-cupti130401"], "--archive", tmp_path, "--buckets", "4")
    ingest(capsys, *words)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    ingest(capsys, *words)
    assert len(before) > 1
    assert set(tmp_path.rglob("*.parquet")) == set(before)
    run = Run("again", tmp_path, tmp_path, {})
    assert run.select("count(*), count(DISTINCT session_row)") == [(34508, 34508)]


def test_two_files_in_one_call_are_both_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that points and archive hold a recording and a table, each whole."""
    points, archive = tmp_path / "points", tmp_path / "archive"
    account = ingest(
        capsys, FILES["streams-cupti130500"], SLICE, "--points", points, "--archive", archive, "--window", "500ms"
    )
    both = [*works("streams-cupti130500"), *table_works()]
    assert points_by_key(points.read_text().splitlines(), 500_000_000) == brute_force(both, 500_000_000)
    assert Run("both", points, archive, {}).select("count(*)") == [(len(both),)]
    assert account["spans_received"] == len(both)


def test_the_same_file_twice_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that batches come under the same numbers again, are taken for duplicates, and are accounted for."""
    points, archive = tmp_path / "points", tmp_path / "archive"
    file = FILES["streams-cupti130500"]
    account = ingest(capsys, file, file, "--points", points, "--archive", archive, "--window", "1s")
    one = works("streams-cupti130500")
    assert points_by_key(points.read_text().splitlines(), SECOND_NS) == brute_force(one, SECOND_NS)
    pipeline = account["pipeline"]
    assert pipeline["spans_received_total"]["all"] == 2 * len(one)
    assert pipeline["spans_ignored_total"]["duplicate"] == len(one)
    assert pipeline["spans_archived_total"]["all"] == len(one)


def test_late_spans_are_counted_told_and_archived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that what comes after its window has closed adds points to it: a table that goes back
    in its second batch."""
    swapped, points, archive = (tmp_path / name for name in ("swapped.parquet", "points", "archive"))
    table = pq.read_table(SLICE)
    halves = [table.slice(10_000)] * 7 + [table.slice(0, 10_000)]
    pq.write_table(pa.concat_tables(halves), swapped)
    batches, width_ns = tmp_path / "batches.spans", 10_000_000
    words = (swapped, "--points", points, "--archive", archive, "--batches", batches)
    account = ingest(capsys, *words, "--window", "10ms", "--lateness", "1ns")
    in_order = table_works()[10_000:] * 7 + table_works()[:10_000]
    on_time, late, closed, newest = [], [], -1, 0
    assert main(["cat", "--batches", str(batches)]) == 0
    for line in capsys.readouterr().out.splitlines():
        batch = [in_order.pop(0) for _ in range(json.loads(line)["rows"])]
        on_time += [work for work in batch if work.start_ns // width_ns >= closed]
        late.append([work for work in batch if work.start_ns // width_ns < closed])
        newest = max(newest, *(work.start_ns for work in batch))
        closed = max(closed, (newest - 1) // width_ns)
    assert in_order == []
    assert 0 < len(on_time) < 80_000
    assert account["pipeline"]["late_spans_total"]["all"] == 80_000 - len(on_time)
    assert account["pipeline"]["spans_folded_total"]["all"] == 80_000
    found = Counter(
        pair for line in points.read_text().splitlines() for pair in points_by_key([line], width_ns).items()
    )
    parts = [brute_force(some, width_ns) for some in (on_time, *late)]
    assert found == Counter(pair for part in parts for pair in part.items())
    assert Run("late", points, archive, account).select("count(*)") == [(80_000,)]


def test_enough_lateness_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that windows that close on the way say the same as windows that close at the end."""
    points = tmp_path / "points"
    ingest(capsys, FILES["serve-cupti130500"], "--points", points, "--window", "500ms", "--lateness", "5s")
    found = points_by_key(points.read_text().splitlines(), 500_000_000)
    assert found == brute_force(works("serve-cupti130500"), 500_000_000)


def test_top_k_keeps_the_totals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that five kernels keep their points and that `other` is exactly the rest, buckets included."""
    points = tmp_path / "points"
    ingest(capsys, FILES["serve-cupti130500"], "--points", points, "--top-k", "5", "--window", "1h")
    all_works = works("serve-cupti130500")
    time_ns: Counter[str] = Counter()
    for work in all_works:
        time_ns[work.name] += work.duration_ns
    kept = {name for name, _ in time_ns.most_common(5)}
    lines = [json.loads(line) for line in points.read_text().splitlines()]
    assert {line["labels"]["name"] for line in lines if line["labels"]["kernel"] != "other"} == kept
    rest = [work for work in all_works if work.name not in kept]
    assert sum(line["count"] for line in lines) == len(all_works)
    others = [line for line in lines if line["labels"]["kernel"] == "other"]
    assert sum(line["count"] for line in others) == len(rest)
    assert sum(line["sum_ns"] for line in others) == sum(work.duration_ns for work in rest)
    assert sum(line["bytes"] for line in others) == sum(work.bytes for work in rest)
    buckets: Counter[int] = Counter()
    for line in others:
        buckets.update(dict(line["buckets"]))
    (whole,) = brute_force(
        [w._replace(start_ns=0, name="", kind="", stage="", launch=(), copy_kind=0) for w in rest], 1
    ).values()
    assert tuple(sorted(buckets.items())) == whole.buckets


def test_points_go_to_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Proves that `--points -` prints JSON lines and nothing else, the account on stderr."""
    assert main(["ingest", str(FILES["streams-cupti130500"]), "--points", "-", "--window", "1s"]) == 0
    out, err = capfd.readouterr()
    assert points_by_key(out.splitlines(), SECOND_NS) == brute_force(works("streams-cupti130500"), SECOND_NS)
    assert err == "2410 spans delivered; dropped: none\n"


def test_an_empty_kernel_table_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that a file without rows is no error: an empty list of points, no archive."""
    empty, points = tmp_path / "empty.parquet", tmp_path / "points"
    pq.write_table(pq.read_table(SLICE).slice(0, 0), empty)
    account = ingest(capsys, empty, "--points", points, "--archive", tmp_path / "archive")
    assert account["spans_received"] == 0
    assert points.read_text() == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.parquet", "points"]
