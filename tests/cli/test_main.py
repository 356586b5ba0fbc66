"""The command itself: help, version, errors, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

from spanlite.cli.main import COMMANDS, main
from tests.cli.process import spanlite
from tests.cli.recorded import DATA

RECORDING = DATA / "h200" / "streams-cupti130500.bin.xz"
DOCS = Path(__file__).parents[2] / "docs"
HEAVY = ("pyarrow", "cupti", "duckdb", "rich", "numpy", "google", "prometheus_client", "zstandard")


def python(code: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs code in an interpreter of its own."""
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_with_examples(words: list[str]) -> None:
    """Proves it with and without the flag: exit 0, on standard output."""
    done = spanlite(*words)
    assert (done.returncode, done.stderr) == (0, "")
    for name, entry in COMMANDS.items():
        assert f"\n    {name} " in done.stdout
        assert " ".join(entry.help.split()) in " ".join(done.stdout.split())
    assert "examples:\n  spanlite demo\n" in done.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    """Proves that each has a description and examples, and that help needs no extra."""
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY[:4]!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
from spanlite.cli.main import main
sys.exit(main([{name!r}, "--help"]))
"""
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: spanlite {name} ")


def test_help_and_version_import_nothing_heavy() -> None:
    """Proves that neither asks for an extra or loads numpy, so that both answer at once."""
    code = f"""
import sys
from spanlite.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    assert ended.code == 0
print("LOADED", [name for name in {HEAVY!r} if name in sys.modules])
"""
    for word in ("--help", "--version"):
        assert python(code, word).stdout.endswith("LOADED []\n")


def test_version_is_the_packages() -> None:
    """Proves it is the one that was installed."""
    assert spanlite("--version").stdout == f"spanlite {version('spanlite')}\n"


@pytest.mark.parametrize(
    ("command", "module"),
    [("ingest", "cupti"), ("ingest", "pyarrow"), ("cat", "cupti"), ("demo", "rich"), ("demo", "prometheus_client")],
)
def test_a_missing_extra_is_named_with_the_line_that_installs_it(command: str, module: str, tmp_path: Path) -> None:
    """Proves exit 2 and one line; the module is kept away by a finder that denies it."""
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
from spanlite.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    words = {"ingest": ("ingest", RECORDING, "--points", tmp_path / "p"), "cat": ("cat", RECORDING)}
    done = python(code, *words.get(command, (command, "--port", "0")))
    extra = COMMANDS[command].extra
    assert done.returncode == 2
    assert done.stderr == f"spanlite: {command} needs {module}: pip install 'spanlite[{extra}]'\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["injest"], "invalid choice: 'injest'"),
        (["--colour", "demo"], "--colour"),
        (["ingest"], "FILE"),
        (["cat"], "FILE"),
        (["demo", "--speed", "fast"], "invalid float value: 'fast'"),
        (["demo", "--speed=-1"], "--speed must be 0 or more"),
        (["demo", "--speed", "nan"], "--speed must be 0 or more"),
        (["demo", "--port"], "expected one argument"),
        (["--config"], "expected one argument"),
        (["--config", "none.toml", "demo"], "none.toml: No such file"),
    ],
)
def test_a_wrong_call_gets_one_line_and_exit_2(words: list[str], said: str) -> None:
    """Proves that no usage text and no traceback bury what is wrong, and that it leads to the help or names the fix."""
    done = spanlite(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("spanlite: ")
    assert said in line


def test_line_ends_in_a_name_stay_on_one_line(tmp_path: Path) -> None:
    """Proves that a file name cannot break the one line of an error."""
    done = spanlite("cat", tmp_path / "a\nb  c.spans")
    (line,) = done.stderr.splitlines()
    assert "a b  c.spans" in line


def test_a_full_disk_behind_standard_output_is_an_error() -> None:
    """Proves that output that went nowhere is told: one line, exit 1."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "spanlite", "cat", str(RECORDING)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "No space left on device" in line


@pytest.mark.parametrize("words", [["--help"], ["cat", str(RECORDING)], ["ingest", str(RECORDING), "--points", "-"]])
def test_a_pipe_that_nobody_reads_is_no_error(words: list[str]) -> None:
    """Proves that not even a few buffered bytes make noise when the reader has gone before they are written."""
    with subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.PIPE) as gone:
        gone.wait(timeout=60)
        command = [sys.executable, "-m", "spanlite", *words]
        done = subprocess.run(command, stdout=gone.stdin, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_settings_give_flags_their_defaults(tmp_path: Path) -> None:
    """Proves that a file's value is used, and that a flag wins over it."""
    settings = tmp_path / "spanlite.toml"
    settings.write_text('[ingest]\nwindow = "250ms"\nquiet = true\npoints = "-"\n')
    in_file = spanlite("--config", settings, "ingest", RECORDING)
    assert (in_file.returncode, in_file.stderr) == (0, "")
    assert '"end_ns": 1795959454250000000}' in in_file.stdout
    flag = spanlite("--config", settings, "ingest", RECORDING, "--window", "1s")
    assert '"end_ns": 1795959455000000000}' in flag.stdout


def test_verbose_logs_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    """Proves that -vv changes nothing on standard output."""
    plain, verbose = spanlite("cat", RECORDING), spanlite("-vv", "cat", RECORDING)
    assert verbose.returncode == 0
    assert plain.stdout == verbose.stdout


def test_errors_of_spanlite_carry_their_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """Proves 1 for a bad file, 2 for a bad call."""
    assert main(["cat", "none.bin"]) == 1
    assert main(["ingest", "none.bin"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def calls_in(page: Path) -> list[list[str]]:
    """The words of each call of spanlite that a page shows."""
    lines = [line.removeprefix("$ ") for line in page.read_text().splitlines() if line.startswith("$ spanlite ")]
    return [re.split(r"#|\||&&|>", line)[0].split() for line in lines]


@cache
def help_of(*words: str) -> str:
    """What a command, or one action of it, says of itself."""
    done = spanlite(*words, "--help")
    assert done.returncode == 0, done.stderr
    text: str = done.stdout
    return text


def test_every_command_is_documented() -> None:
    """Proves that docs/commands.md shows a call of each, and each action of the pipeline."""
    calls = calls_in(DOCS / "commands.md")
    assert {call[1] for call in calls} == set(COMMANDS)
    assert {call[2] for call in calls if call[1] == "pipeline"} == {"run", "submit", "size"}


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_every_call_in_the_documentation_is_one(page: str) -> None:
    """Proves that no page shows a flag that its command, or the action of it, does not have."""
    for call in calls_in(DOCS / page):
        words = call[1:3] if call[1] in ("backtest", "pipeline", "replay") else call[1:2]
        flags = [word.partition("=")[0] for word in call if word.startswith("-") and word != "-"]
        assert [flag for flag in flags if f" {flag}" not in help_of(*words)] == [], call
