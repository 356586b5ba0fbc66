"""`spanlite cat`: spans of recordings and of files of batches as JSON lines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spanlite.cli.main import main
from tests.cli.process import spanlite
from tests.cli.recorded import CONFIG, DATA, SLICE, raw, table_works, timeline, works

SERVE = DATA / "h200" / "serve-cupti130001.bin.xz"
STAGES = DATA / "h200" / "stages-cupti130401.bin.xz"
STREAMS = DATA / "h200" / "streams-cupti130500.bin.xz"


def lines(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[dict[str, Any]]:
    """The JSON lines of a run that ends well."""
    assert main(["cat", *map(str, words)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def as_tuple(span: dict[str, Any]) -> tuple[Any, ...]:
    """What `expected` says of a span."""
    config, place = span["config"] or {}, span["place"]
    launch = tuple(config.get(name, 0) for name in CONFIG)
    names = (span["kind"], span["name"], span["start_unix_ns"], span["duration_ns"], span["stage"])
    where = (span["correlation_id"], place["stream_id"], span["graph_id"], span["graph_node_id"])
    return (*names, launch, config.get("copy_kind", 0), span["bytes"], where)


@pytest.mark.parametrize("name", ["stages-cupti130401", "serve-cupti130001"])
def test_spans_of_a_recording_are_all_there(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves every execution and every range field by field against the raw bytes, and that span ids are unique."""
    spans = lines(capsys, DATA / "h200" / f"{name}.bin.xz")
    work = Counter(as_tuple(span) for span in spans if span["kind"] != "range")
    assert work == Counter(tuple(one) for one in works(name))
    ranges = [(s["name"], s["start_unix_ns"], s["duration_ns"]) for s in spans if s["kind"] == "range"]
    assert sorted(ranges) == sorted(timeline(raw(name)).ranges)
    assert len({span["span_id"] for span in spans}) == len(spans)


def test_parents_enclose_their_children(capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that a parent's id is that of the range named as stage, and that parent and child share the trace."""
    spans = lines(capsys, STAGES)
    ranges = {span["span_id"]: span for span in spans if span["kind"] == "range"}
    children = [span for span in spans if span["parent_span_id"]]
    assert len(children) > 30_000
    for span in children:
        parent = ranges[span["parent_span_id"]]
        assert span["stage"] == parent["name"]
        assert span["trace_id"] == parent["trace_id"]


def test_a_file_of_batches_says_the_same_as_its_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves the round trip through `ingest --batches`: line by line the same, two sources in one file."""
    batches = tmp_path / "b.spans"
    assert main(["ingest", str(SERVE), str(STREAMS), "--batches", str(batches), "-q"]) == 0
    assert lines(capsys, batches) == lines(capsys, SERVE, STREAMS)
    assert [path.name for path in tmp_path.iterdir()] == ["b.spans"]


def test_batches_go_to_standard_output(tmp_path: Path) -> None:
    """Proves that `--batches -` writes the bytes that `--batches FILE` writes, but for the time of sending."""
    done = spanlite("ingest", STREAMS, "--batches", "-", "-q", text=False)
    assert (done.returncode, done.stderr) == (0, b"")
    (tmp_path / "b.spans").write_bytes(done.stdout)
    found = spanlite("cat", tmp_path / "b.spans").stdout.splitlines()
    assert len(found) == len(works("streams-cupti130500"))


def test_headers_count_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    """Proves --batches: rows without gaps from 0, sequences from 0, who sent them, which GPU and kernels."""
    headers = lines(capsys, "--batches", STAGES)
    rows = [header["rows"] for header in headers]
    assert sum(rows) == raw("stages-cupti130401").spans
    assert [header["first_row"] for header in headers] == [sum(rows[:at]) for at in range(len(rows))]
    assert [header["sequence"] for header in headers] == list(range(len(rows)))
    assert len({(header["producer"], header["session"]) for header in headers}) == 1
    assert headers[0]["gpus"] == ["GPU-unrecorded-0"]
    assert headers[0]["resource"]["workload"] == "stages"
    assert len({kernel for header in headers for kernel in header["kernels"]}) > 20


def test_a_kernel_table_is_printed_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Proves its rows in their order."""
    spans = lines(capsys, SLICE)
    assert [(s["name"], s["start_unix_ns"], s["duration_ns"]) for s in spans] == [
        (w.name, w.start_ns, w.duration_ns) for w in table_works()
    ]


def test_a_reader_that_leaves_is_no_error() -> None:
    """Proves that `cat | head -1` ends quietly, with 0, for a recording and on the pipeline's own thread."""
    command = [sys.executable, "-m", "spanlite", "cat", str(STAGES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["kind"]
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 0


def whole(folder: Path) -> bytes:
    """A file of batches."""
    path = folder / "whole.spans"
    assert main(["ingest", str(STREAMS), "--batches", str(path), "-q"]) == 0
    return path.read_bytes()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "truncated"),
        (lambda data: data[: len(data) // 2], "truncated"),
        (lambda data: data[:1], "truncated"),
        (lambda data: b"\xff" * len(data), "not_delimited"),
        (lambda data: b"\x05hello" + data, "b.spans: "),
        (lambda data: b"\xff\xff\xff\xff\x0f" + data, "message_bytes"),
        (lambda data: data[:200] + bytes(64) + data[264:], "b.spans: "),
    ],
    ids=["last byte", "half", "first byte", "no lengths", "no message", "endless", "zeros inside"],
)
def test_a_damaged_file_of_batches_is_named(damage: Any, said: str, tmp_path: Path) -> None:
    """Proves one line with the file's name, the reason, and what to do."""
    path = tmp_path / "b.spans"
    path.write_bytes(damage(whole(tmp_path)))
    done = spanlite("cat", path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith(f"spanlite: {path}: ")
    assert said in line
    assert "ingest --batches" in line


def test_a_file_that_is_not_there_is_named() -> None:
    """Proves it for each kind of file."""
    for name in ("none.spans", "none.bin", "none.parquet", "none"):
        done = spanlite("cat", name)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert name in done.stderr
