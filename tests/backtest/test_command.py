"""`spanlite backtest`: what it writes, says and returns."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanlite.cli.main import main
from tests.cli.process import refused, spanlite, tree
from tests.cli.recorded import DATA

RECORDING = DATA / "h200" / "stages-cupti130401.bin.xz"
WINDOW = ("--window", "100ms")


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive, the points of the live run, and those of the backtest in both forms."""
    folder = tmp_path_factory.mktemp("ingested")
    files = ("--archive", folder / "traces", "--points", folder / "live.jsonl")
    assert main(["ingest", str(RECORDING), *map(str, files), *WINDOW, "-q"]) == 0
    for name in ("again.jsonl", "again.bin"):
        assert main(["backtest", "run", str(folder / "traces"), "-o", str(folder / name), *WINDOW, "-q"]) == 0
    return folder


def call(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """The command in this process: exit code and what it said."""
    code = main(["backtest", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_lines_are_those_of_the_live_run(ingested: Path) -> None:
    """`ingest --points` and the backtest of its archive would not be the same lines."""
    live, again = ((ingested / name).read_text().splitlines() for name in ("live.jsonl", "again.jsonl"))
    assert len(live) > 20
    assert sorted(again) == sorted(live)


def test_run_says_what_it_did(ingested: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spans would be missing from the account, or the account from the terminal."""
    code, out, err = call(capsys, "run", ingested / "traces", "-o", tmp_path / "a.bin", *WINDOW, "--json")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert facts["spans"] == facts["folded"] + facts["ignored_ranges"]
    assert facts["points"] == len((ingested / "live.jsonl").read_text().splitlines())
    assert (facts["window_ns"], facts["late"], facts["rejected"]) == (10**8, 0, {})
    assert (tmp_path / "a.bin").read_bytes() == (ingested / "again.bin").read_bytes()
    done = spanlite("backtest", "run", ingested / "traces", "-o", "-", *WINDOW)
    assert done.stdout == (ingested / "again.jsonl").read_text()
    assert f"{facts['spans']} spans, {facts['points']} points of " in done.stderr


def test_a_selection_counts_its_own_spans(ingested: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that only fill gaps would be counted as ranges of the run."""
    words = ("run", ingested / "traces", "-o", tmp_path / "a.bin", "--min-duration", "5us", "--json")
    code, out, _ = call(capsys, *words)
    facts = json.loads(out)
    table = pa.concat_tables(pq.read_table(path, columns=["kind", "duration_ns"]) for path in _files(ingested))
    long = [
        kind for kind, ns in zip(*(table[n].to_pylist() for n in ("kind", "duration_ns")), strict=True) if ns >= 5000
    ]
    assert code == 0
    assert 0 < facts["spans"] == len(long) < table.num_rows
    assert facts["ignored_ranges"] == long.count("range")


def _files(ingested: Path) -> list[Path]:
    return sorted((ingested / "traces").rglob("*.parquet"))


@pytest.mark.parametrize("other", ["again.jsonl", "again.bin", "traces", "--archive"])
def test_diff_of_the_same_is_0(ingested: Path, other: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A file, an archive in the file's windows, or the other form would not compare as equal."""
    words = ("--archive", ingested / "traces") if other == "--archive" else (ingested / other,)
    code, out, err = call(capsys, "diff", ingested / "live.jsonl", *words)
    assert (code, err) == (0, "")
    assert out.startswith("points of windows of 0.1 s: ")
    assert " equal, 0 changed, 0 only in " in out


def test_diff_shows_what_differs_and_returns_1(
    ingested: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A regression gate would pass, or not say why it does not."""
    lines = (ingested / "live.jsonl").read_text().splitlines()
    point = json.loads(lines[5])
    point["sum_ns"] *= 2
    changed = tmp_path / "changed.jsonl"
    changed.write_text("\n".join([*lines[1:5], json.dumps(point), *lines[6:]]) + "\n")
    code, out, _ = call(capsys, "diff", ingested / "again.bin", changed)
    assert code == 1
    assert f"{len(lines) - 2} equal, 1 changed, 1 only in {ingested / 'again.bin'}, 0 only in {changed}\n" in out
    assert f"sum_ns          50 %  {point['sum_ns'] // 2} → {point['sum_ns']}" in out
    assert out.count("\n- ") == 1
    code, out, _ = call(capsys, "diff", ingested / "again.bin", changed, "--json")
    facts = json.loads(out)
    assert (code, facts["changed"], facts["only_a"], facts["only_b"]) == (1, 1, 1, 0)
    assert facts["worst"][0]["fields"]["sum_ns"] == {"off": 0.5, "a": point["sum_ns"] // 2, "b": point["sum_ns"]}
    assert facts["worst"][0]["series"]["kernel"] == point["labels"]["kernel"]
    code, _, _ = call(capsys, "diff", changed, changed, "--tolerance", "1%")
    assert code == 0


def test_other_windows_are_folded_or_refused(
    ingested: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Windows that do not divide each other would be compared all the same."""
    wide, odd = tmp_path / "wide.bin", tmp_path / "odd.bin"
    for path, window in ((wide, "700ms"), (odd, "150ms")):
        assert call(capsys, "run", ingested / "traces", "-o", path, "--window", window, "-q")[0] == 0
    assert call(capsys, "diff", wide, ingested / "again.bin")[0] == 0
    code, _, err = call(capsys, "diff", odd, ingested / "again.bin")
    assert code == 2
    assert "one must be a multiple of the other" in err


def test_alerts_show_each_with_its_course(ingested: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An alert would be shown without the windows, the figure or the series that it is about."""
    words = ("alerts", ingested / "again.bin", "--rule", "max > 1ns for 2", "--kernel", "*gemm*", "--kernel", "*nvjet*")
    code, out, _ = call(capsys, *words, "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["window_ns"] == 10**8
    assert facts["alerts"]
    first = facts["alerts"][0]
    assert first["end_ns"] - first["start_ns"] == first["windows"] * 10**8
    assert (first["rule"], first["threshold"], first["unit"]) == ("max > 1ns for 2", 1.0, "time")
    assert {"gemm" in a["series"]["kernel"] or "nvjet" in a["series"]["kernel"] for a in facts["alerts"]} == {True}
    code, out, _ = call(capsys, *words, "--limit", "1")
    lines = out.splitlines()
    assert lines[0].startswith(f"max > 1ns for 2: {len(facts['alerts'])} alerts of ")
    assert first["series"]["kernel"] in lines[1]
    assert lines[2].count("[") == lines[2].count("]") == 1
    assert lines[3] == f"  … and {len(facts['alerts']) - 1} more: --limit, or --json for all"


def test_rules_and_windows_are_compared(ingested: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a new threshold would add, or no longer tell, could not be seen before it is put to work."""
    rules = tmp_path / "rules"
    rules.write_text("# what we have\n\nmax > 1ns for 2\n")
    words = ("alerts", ingested / "traces", *WINDOW, "--rule", f"@{rules}", "--against")
    for against, only_here, both in (("max > 1h", True, False), ("max > 1ns for 2", False, True)):
        _, out, _ = call(capsys, *words, against, "--json")
        facts = json.loads(out)
        assert facts["against"]["rules"] == [against]
        assert (bool(facts["against"]["only_here"]), bool(facts["against"]["both"])) == (only_here, both)
        assert facts["against"]["only_against"] == []
    _, out, _ = call(capsys, *words[:-1], "--against-window", "150ms", "--json")
    facts = json.loads(out)
    assert facts["against"]["window_ns"] == 150_000_000
    assert facts["against"]["both"]
    _, out, _ = call(capsys, *words, "max > 1ns for 3")
    assert "\nagainst max > 1ns for 3 in windows of 100ms: " in out
    assert "starts as before, told 100ms later" in out


@pytest.mark.parametrize(
    "wrong",
    [
        (("run", "{traces}"), 2, "-o FILE is missing"),
        (("run", "{traces}", "-o", "-", "--json"), 2, "would both write to stdout"),
        (("run", "{traces}", "-o", "{out}", "--window", "ten"), 2, "'ten' is no duration"),
        (("run", "{traces}", "-o", "{out}", "--top-k", "-1"), 2, "--top-k must be 0 or more"),
        (("run", "{traces}", "-o", "{out}", "--kernel", "none"), 1, "no span is selected"),
        (("run", "{out}/none", "-o", "{out}"), 1, "none"),
        (("run", "{foreign}", "-o", "{out}"), 1, "foreign"),
        (("run", "{traces}", "-o", "{out}", "--runner", "kafka"), 2, "--runner kafka writes no points"),
        (("run", "{traces}", "--runner", "kafka", "--prefix", "a.b"), 2, "--prefix 'a.b'"),
        (("diff", "{live}"), 2, "diff compares two"),
        (("diff", "{live}", "{live}", "--archive", "{traces}"), 2, "diff compares two"),
        (("diff", "{live}", "none"), 2, "none: No such file"),
        (("diff", "{live}", "--archive", "none"), 2, "none"),
        (("diff", "{live}", "{foreign}"), 2, "foreign"),
        (("diff", "{live}", "{live}", "--tolerance", "much"), 2, "--tolerance 'much'"),
        (("alerts", "{live}"), 2, "--rule is missing"),
        (("alerts", "{live}", "--rule", "p99 > 2"), 2, "p99 is a time"),
        (("alerts", "{live}", "--rule", "@none"), 2, "name a file of rules"),
        (("alerts", "{live}", "--rule", "p99 > 2ms", "--kernel", "none"), 2, "no series matches"),
        (("alerts", "kafka:spanlite.points", "--rule", "p99 > 2ms"), 2, "a topic's points are cumulative"),
        (("alerts", "{live}", "--rule", "p99 > 2ms", "--against-window", "150ms"), 2, "take a multiple"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    ingested: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: tuple[tuple[str, ...], int, str]
) -> None:
    """A wrong call would leave files, a traceback, or the exit code of a difference."""
    words, code, said = wrong
    places = {"traces": ingested / "traces", "live": ingested / "live.jsonl", "foreign": _foreign(tmp_path)}
    got, out, err = call(capsys, *(word.format(**places, out=tmp_path / "out") for word in words))
    (line,) = err.splitlines()
    assert (got, out) == (code, "")
    assert line.startswith("spanlite: ")
    assert said in line
    assert {name.partition("/")[0] for name in tree(tmp_path)} == {"foreign"}


def _foreign(folder: Path) -> Path:
    """A folder that looks like an archive and holds somebody else's Parquet."""
    root = folder / "foreign"
    place = root / "date=2026-11-29" / "hour=13" / "bucket=00"
    place.mkdir(parents=True)
    pq.write_table(pa.table({"x": [1]}), place / "a.parquet")
    return root


def test_a_wrong_call_is_one_in_a_process_too(tmp_path: Path) -> None:
    """The exit code would be lost between the command and the shell."""
    done = spanlite("backtest", "diff", tmp_path / "a", tmp_path / "b")
    refused(done, "No such file")
    assert done.returncode == 2
