"""The layout that keeps six source roots one namespace: each trap that would break it silently has a test here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with pytest on 3.10

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
ROOTS: list[str] = PROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"]
HEAVY = ("pyarrow", "cupti", "pyflink", "confluent_kafka", "duckdb", "prometheus_client")


def packages() -> list[Path]:
    """Folders of the packages below the namespace, in all roots."""
    return sorted(
        folder
        for root in ROOTS
        for folder in (ROOT / root / "spanlite").iterdir()
        if folder.is_dir() and folder.name != "__pycache__"
    )


def lint_imports(folder: Path, roots: Path) -> subprocess.CompletedProcess[str]:
    """Runs import-linter with the settings of `folder` on the sources below `roots`."""
    path = ":".join(str(roots / root) for root in ROOTS)
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=folder,
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_root_closes_the_namespace() -> None:
    """An __init__.py directly in <root>/spanlite would hide all other roots; none is there."""
    assert [root for root in ROOTS if (ROOT / root / "spanlite/__init__.py").exists()] == []
    assert all((ROOT / root / "spanlite").is_dir() for root in ROOTS)


def test_all_lists_of_roots_agree() -> None:
    """The editable install, the wheel, mypy, pytest and coverage look at the same source roots."""
    tool = PROJECT["tool"]
    assert tool["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"{root}/spanlite" for root in ROOTS]
    assert tool["mypy"]["mypy_path"].split(":") == [f"$MYPY_CONFIG_FILE_DIR/{root}" for root in ROOTS]
    assert set(tool["mypy"]["files"]) == (set(ROOTS) - {"proto"}) | {"tests", "benchmarks"}
    assert tool["pytest"]["ini_options"]["pythonpath"] == ROOTS
    assert set(tool["coverage"]["run"]["source"]) == set(ROOTS) - {"proto"}


def test_import_linter_sees_every_package() -> None:
    """A new package is not left out of the layer rules."""
    assert sorted(PROJECT["tool"]["importlinter"]["root_packages"]) == sorted(f"spanlite.{p.name}" for p in packages())


def test_wheel_holds_the_namespace_and_nothing_else(tmp_path: Path) -> None:
    """The built wheel contains every source file of all roots under spanlite/, and no other top-level name."""
    build = f"import hatchling.build; print(hatchling.build.build_wheel({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", build], cwd=ROOT, capture_output=True, text=True, check=True)
    wheel = tmp_path / done.stdout.split()[-1]
    names = zipfile.ZipFile(wheel).namelist()
    inside = {name for name in names if not name.startswith(f"spanlite-{PROJECT['project']['version']}.dist-info/")}
    expected = {
        str(file.relative_to(ROOT / root))
        for root in ROOTS
        for file in (ROOT / root / "spanlite").rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    assert inside == expected
    assert re.search("-py3-none-(?!any)[a-z0-9_]+[.]whl$", wheel.name)  # it holds the compiled inner loops


def test_equal_test_file_names_do_not_collide() -> None:
    """pytest imports by path, so tests/agent/test_x.py and tests/pipeline/test_x.py can both exist."""
    options = PROJECT["tool"]["pytest"]["ini_options"]
    assert "--import-mode=importlib" in options["addopts"]
    assert options["consider_namespace_packages"] is True
    assert list((ROOT / "tests").rglob("__init__.py")) == []


@pytest.mark.parametrize("package", packages(), ids=lambda package: str(package.name))
def test_each_package_ships_its_types(package: Path) -> None:
    """A namespace cannot carry py.typed, so each package below it does."""
    assert (package / "py.typed").is_file()


def test_the_version_is_written_once() -> None:
    """No source file repeats the version of pyproject.toml; code asks importlib.metadata."""
    pattern = re.compile(r"^__version__\s*(:.*)?=\s*[\"']", re.MULTILINE)
    sources = [file for root in ROOTS for file in (ROOT / root).rglob("*.py")]
    assert sources
    assert [file for file in sources if pattern.search(file.read_text("utf-8"))] == []


def test_the_namespace_runs_as_a_module_from_one_place() -> None:
    """`python -m spanlite` has exactly one __main__.py, since a second one would win or lose by path order."""
    assert [root for root in ROOTS if (ROOT / root / "spanlite/__main__.py").exists()] == ["core"]


def test_the_command_line_starts_without_the_extras() -> None:
    """Importing the entry point loads no heavy library: commands import what they need when they are chosen."""
    script = f"import sys, spanlite.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_imports_keep_to_the_layers() -> None:
    """Who may import whom, and what is confined to one place, holds in the whole source."""
    done = lint_imports(ROOT, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_import_rule_can_fail(tmp_path: Path) -> None:
    """One forbidden import of each sort, put into a copy of the source, breaks its rule and only that."""
    for root in ROOTS:
        shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, line in {
        "pipeline/spanlite/pipeline/__init__.py": "import spanlite.agent\nimport cupti\nimport pynvml\n",
        "exporters/spanlite/exporters/__init__.py": "import spanlite.v1.span_pb2\n",
        "agent/spanlite/agent/__init__.py": "import prometheus_client\n",
        "replay/spanlite/replay/__init__.py": "def later() -> None:\n    import confluent_kafka\n",
    }.items():
        with (tmp_path / file).open("a", encoding="utf-8") as stream:
            stream.write("\n" + line)
    done = lint_imports(tmp_path, tmp_path)
    assert done.returncode == 1
    rules = [contract["name"] for contract in PROJECT["tool"]["importlinter"]["contracts"]]
    assert [rule for rule in rules if not re.search(rf"^{re.escape(rule)} BROKEN", done.stdout, re.MULTILINE)] == []
