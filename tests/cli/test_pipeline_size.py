"""`spanlite pipeline size`: what it prints, as text and as JSON, and what it refuses."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from spanlite.cli import pipeline_size
from spanlite.contract.errors import UsageError

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
FLEET = ("--gpus", "10,000", "--kernels-per-second", "5e4")


def run(*flags: str) -> int:
    parser = argparse.ArgumentParser()
    pipeline_size.add_arguments(parser)
    return pipeline_size.run(parser.parse_args(flags))


def test_every_line_shows_its_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    """Quantity, result, unit, formula and numbers on one line; assumed ones are marked, and the mark is explained."""
    assert run(*FLEET) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Load"
    assert " ".join(lines[1].split()) == "spans 500 M spans/s gpus × kernels_per_second = 10,000 × 50,000"
    assert any(line.startswith("  totals and points") and " ~ " in line for line in lines)
    assert any(line.startswith("~ rests on a figure that is assumed") for line in lines)
    assert "Advice" in lines


def test_brief_leaves_the_arithmetic_out(capsys: pytest.CaptureFixture[str]) -> None:
    """The same quantities, without formulas."""
    assert run(*FLEET, "--brief") == 0
    out = capsys.readouterr().out
    assert "500 M spans/s\n" in out
    assert "kernels_per_second" not in out


def test_json_has_request_figures_lines_and_advice(capsys: pytest.CaptureFixture[str]) -> None:
    """Exact values under stable names; durations in seconds, days among them."""
    assert run(*FLEET, "--retention", "2d", "--window", "20s", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"request", "figures", "lines", "advice"}
    assert (found["request"]["gpus"], found["request"]["retention_s"], found["request"]["window_s"]) == (
        10_000,
        172_800,
        20,
    )
    by_name = {line["name"]: line for line in found["lines"]}
    assert by_name["point_records"]["value"] == 250_000
    assert by_name["point_records"]["unit"] == "records/s"
    assert by_name["spans_disk"]["value"] == pytest.approx(by_name["ingress"]["value"] * 172_800 * 3)
    assert found["advice"]


def test_one_gpu_is_told_to_run_embedded(capsys: pytest.CaptureFixture[str]) -> None:
    """Small fleets hear that they need no Kafka."""
    assert run("--gpus", "1", "--kernels-per-second", "20000", "--brief") == 0
    assert "one process is enough: the embedded runner" in capsys.readouterr().out


def test_figures_of_a_benchmark_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--figures replaces the assumed rate: the line changes and loses its mark."""
    file = tmp_path / "bench_flink.json"
    file.write_text('{"metrics_thread_spans_per_core_second": 1e7}')
    assert run(*FLEET, "--figures", str(file), "--json") == 0
    folding = next(line for line in json.loads(capsys.readouterr().out)["lines"] if line["name"] == "fold_cores")
    assert (folding["value"], folding["assumed"]) == (50.0, False)


def test_the_page_quotes_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line that docs/scaling.md shows below a call is, to the letter, a line of that call's output."""
    blocks = re.findall(r"```console\n\$ spanlite pipeline size ([^\n]+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert sum(bool(quoted) for _, quoted in blocks) >= 4
    for flags, quoted in blocks:
        assert run(*flags.split()) == 0
        printed = capsys.readouterr().out.splitlines()
        assert [line for line in quoted.splitlines() if line not in printed] == [], flags


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--gpus", "many", "--kernels-per-second", "1"), "--gpus is 'many'; give a number"),
        (("--gpus", "1.5", "--kernels-per-second", "1"), "--gpus is 1.5; give a whole number"),
        (("--gpus", "0", "--kernels-per-second", "1"), "--gpus is 0; give a number above 0"),
        (("--gpus", "1e999", "--kernels-per-second", "1"), "--gpus is '1e999'; give a number"),
        (("--gpus", "1", "--kernels-per-second", "nan"), "--kernels-per-second is 'nan'; give a number"),
        ((*FLEET, "--window", "ten"), "--window: 'ten' is no duration; write"),
        ((*FLEET, "--retention", "d"), "--retention: 'd' is no duration; write"),
        ((*FLEET, "--mode", "fork"), "--mode is 'fork'; give thread or process"),
        ((*FLEET, "--headroom", "2"), "--headroom is 2; give"),
        ((*FLEET, "--figures", "nowhere.json"), "nowhere.json: No such file"),
    ],
)
def test_flags_that_are_off_are_named_with_what_they_may_be(flags: tuple[str, ...], said: str) -> None:
    """Each mistake is one sentence that names the flag and the fix."""
    with pytest.raises(UsageError) as caught:
        run(*flags)
    assert said in str(caught.value)
