"""`spanlite replay compare` over archives and the files that replays of them wrote."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanlite.cli.main import main
from spanlite.contract.batch import Batch
from spanlite.contract.codec import decode_batch, encode_batch
from spanlite.contract.delimited import read_delimited, write_delimited
from spanlite.replay.compare.figures import NAMES
from tests.cli.process import refused, spanlite
from tests.replay.archives import write_archive

FAITHFUL = ("missing", "duplicate", "foreign", "changed", "traces_failed", "timing_error_ns", "out_of_order")


def replayed(root: Path, path: Path, *flags: str) -> Path:
    """A file that a replay wrote."""
    assert main(["replay", "run", str(root), "--to", "file", "-o", str(path), "-q", *flags]) == 0
    return path


@pytest.fixture(scope="module")
def replay_once(small_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file that a replay of the small archive wrote, and its manifest."""
    return replayed(small_archive, tmp_path_factory.mktemp("once") / "out").parent


@pytest.fixture
def out(replay_once: Path, tmp_path: Path) -> Path:
    """A copy of that file, its manifest beside it."""
    for name in ("out", "out.json"):
        shutil.copy(replay_once / name, tmp_path / name)
    return tmp_path / "out"


def report_of(root: Path, came: Path | str, tmp_path: Path, *flags: str, code: int = 0) -> dict[str, Any]:
    """The report as JSON."""
    out = tmp_path / "report.json"
    assert main(["replay", "compare", str(root), str(came), "--json", str(out), *flags]) == code
    facts: dict[str, Any] = json.loads(out.read_text())
    return facts


def batches_of(path: Path) -> list[Batch]:
    """The batches of a file, as they are."""
    with path.open("rb") as stream:
        return [decode_batch(value) for value in read_delimited(stream, most_bytes=1 << 23)]


def written(path: Path, batches: list[Batch]) -> None:
    """Replaces a file by these batches; its manifest stays."""
    with path.open("wb") as stream:
        for batch in batches:
            write_delimited(stream, encode_batch(batch))


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--shift offset=+2h --pace-by start",
        "--ids remap --seed 5 --loop 2 --shift now",
        "--min-duration 1ms",
        "--kernel *elementwise* --ids remap --shift now",
        "--kernel *elementwise* --whole-traces --ids remap",
        "--host node-1 --stage * --limit-spans 4000",
        "--ids remap --loop 0 --limit-batches 20 --pace-by start",
    ],
)
def test_real_replays_compare_as_equal(archive: Path, tmp_path: Path, flags: str, capsys: Any) -> None:
    """Whatever is selected, moved, mapped, looped and cut short: what came is what was to come, to the nanosecond."""
    facts = report_of(archive, replayed(archive, tmp_path / "out", *flags.split()), tmp_path)
    figures = facts["figures"]
    assert {name: figures[name] for name in FAITHFUL} == dict.fromkeys(FAITHFUL, 0)
    assert figures["topology"] == 100
    assert figures["spans_original"] == figures["spans_replay"] > 20
    assert figures["batches_original"] == figures["batches_replay"]
    assert (figures["ks"], figures["w1_ns"]) == (0, 0)
    manifest = json.loads((tmp_path / "out.json").read_text())
    assert figures["spans_replay"] == manifest["emitted"]["spans"]
    assert figures["bytes_per_span"] == manifest["emitted"]["bytes"] / manifest["emitted"]["spans"]
    assert list(figures) == list(NAMES)
    assert "topology" in capsys.readouterr().out


def test_a_sample_of_traces_compares_as_equal(archive: Path, tmp_path: Path) -> None:
    """A share of all traces is chosen here as it is there."""
    facts = report_of(archive, replayed(archive, tmp_path / "out", "--sample", "30%"), tmp_path)
    assert {name: facts["figures"][name] for name in FAITHFUL} == dict.fromkeys(FAITHFUL, 0)


def test_the_pace_is_told_as_the_run_told_it(small_archive: Path, replay_once: Path, tmp_path: Path) -> None:
    """Lateness is that of the manifest; without a pace there is none, and the report says why."""
    out = replayed(small_archive, tmp_path / "out", "--speed", "1000")
    figures = report_of(small_archive, out, tmp_path)["figures"]
    lateness = json.loads((tmp_path / "out.json").read_text())["pacing"]["lateness_ns"]
    assert {name: figures[f"lateness_{name}_ns"] for name in lateness} == lateness
    shutil.copy(replay_once / "out.json", tmp_path / "out.json")
    facts = report_of(small_archive, out, tmp_path)
    assert facts["figures"]["lateness_p99_ns"] is None
    assert "no pace" in facts["unavailable"]["lateness_p99_ns"]


def test_an_archive_of_the_replay_is_compared_too(archive: Path, tmp_path: Path) -> None:
    """What a pipeline archived of a replay has the same spans; it tells no order and no size."""
    out = replayed(archive, tmp_path / "out", "--ids", "remap", "--shift", "now")
    again = write_archive(tmp_path / "again", batches_of(out), buckets=2)
    facts = report_of(archive, again, tmp_path, "--manifest", str(tmp_path / "out.json"))
    assert facts["figures"]["missing"] == facts["figures"]["changed"] == facts["figures"]["foreign"] == 0
    assert facts["figures"]["topology"] == 100
    assert {"out_of_order", "repeated_batches", "bytes_per_span", "size_percent"} <= set(facts["unavailable"])


def test_required_figures_decide_the_exit_code(small_archive: Path, out: Path, tmp_path: Path, capsys: Any) -> None:
    """All hold: 0. One does not, or is not there: 1, named with both numbers; the report is written all the same."""
    words = ["--require", "missing=0", "--require", "topology=100", "--require", "timing_error_ns=0"]
    report_of(small_archive, out, tmp_path, *words)
    batches = batches_of(out)
    written(out, batches[1:])
    gone = len(batches[0].columns)
    capsys.readouterr()
    page = tmp_path / "report.html"
    facts = report_of(small_archive, out, tmp_path, *words, "--require", "late=0", "--html", str(page), code=1)
    said = capsys.readouterr().out
    assert f"failed  missing=0: missing is {gone}, not =0" in said
    assert "failed  late=0: there is no late: the run had no pace" in said
    assert [gate["passed"] for gate in facts["gates"]] == [False, False, True, False]
    assert facts["passed"] is False
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_json_to_standard_output_is_all_there_is(small_archive: Path, out: Path, capsys: Any) -> None:
    """`--json -` prints the report and no table."""
    assert main(["replay", "compare", str(small_archive), str(out), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["missing"] == 0


def _broken(root: Path, out: Path, fault: str) -> list[str]:
    """The words of a call that cannot go well."""
    folder = out.parent
    manifest = folder / "out.json"
    bad = {
        "foreign manifest": (manifest, json.dumps({"format": 1, "settings": []}).encode()),
        "no JSON": (manifest, b"\x80{"),
        "empty": (out, b""),
        "foreign file": (out, b"\x05hello world"),
        "cut file": (out, out.read_bytes()[:-3]),
    }
    if fault in bad:
        path, data = bad[fault]
        path.write_bytes(data)
    gone = {"no file": out, "no manifest": manifest}
    if fault in gone:
        gone[fault].unlink()
    if fault == "wrong archive":
        root = write_archive(folder / "other", [replace(batch, session=7) for batch in batches_of(out)])
    words = {
        "no archive": [str(folder / "none"), str(out)],
        "no figure": [str(root), str(out), "--require", "nothing=0"],
        "no topic's manifest": [str(root), "kafka:topic"],
        "no place": [str(root), str(out), "--html", "/nowhere/report.html"],
    }
    return words.get(fault, [str(root), str(out)])


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("no file", 2, "No such file"),
        ("no manifest", 2, "--manifest FILE"),
        ("foreign manifest", 1, "no manifest of a replay"),
        ("no JSON", 1, "no manifest of a replay"),
        ("empty", 1, "nothing of run"),
        ("foreign file", 1, "message 0"),
        ("cut file", 1, "truncated"),
        ("wrong archive", 1, "name the archive that the run read"),
        ("no archive", 1, "no such folder"),
        ("no figure", 2, "there are spans_original"),
        ("no topic's manifest", 2, "--manifest FILE"),
        ("no place", 2, "/nowhere/report.html"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    small_archive: Path, out: Path, capsys: Any, *, fault: str, code: int, said: str
) -> None:
    """Foreign, empty, cut and missing sides and wrong calls end with one line that says what to do, and no report."""
    words = _broken(small_archive, out, fault)
    assert main(["replay", "compare", *words]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert said in shown.err


def test_a_process_ends_as_the_call_does(small_archive: Path, out: Path) -> None:
    """The command in a process of its own: its table, exit code 1 for a requirement, 2 for a wrong call."""
    done = spanlite("replay", "compare", small_archive, out, "--require", "missing>0")
    assert (done.returncode, done.stderr) == (1, "")
    assert "failed  missing>0: missing is 0, not >0" in done.stdout
    refused(spanlite("replay", "compare", small_archive), "REPLAY")
