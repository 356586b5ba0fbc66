"""What the repository's files may say and weigh: it stands alone, and a clone of it stays small."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MB = 1_000_000
# Written in pieces, so that this file does not name them itself.
OUTSIDE = re.compile(
    r"(?<![\w.\-/])/" + r"(?:work|root)(?![\w\-])"  # absolute paths of one machine
    r"|\.\./" + r"shared(?![\w\-])"
    r"|(?<![\w.\-/])shared/" + r"(?:data|design|reference|hooks)(?![\w\-])"
)
LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def files() -> list[Path]:
    """Every file that is, or would be, in a commit."""
    if not (ROOT / ".git").exists():
        pytest.skip("what would be in a commit is known in a clone only")
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file()]


def text(path: Path) -> str | None:
    """The file as text, None where it is binary."""
    data = path.read_bytes()
    return None if b"\0" in data[:8192] else data.decode("utf-8", errors="replace")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("see /" + "work/main/x", True),
        ("`/" + "root`", True),
        ("../" + "shared" + "/data", True),
        ("in shared" + "/reference/x.md", True),
        ("shared/static memory", False),
        ("tests/work/x and https://x.org/root/y", False),
        ("/workloads and /rootfs", False),
    ],
)
def test_paths_outside_the_project_are_recognised(line: str, named: bool) -> None:
    """The pattern of the next test finds what it should, and leaves likely words alone."""
    assert bool(OUTSIDE.search(line)) is named


def test_no_file_names_a_path_outside_the_project() -> None:
    """A clone works anywhere: no text refers to the machine on which it was written."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in files()
        for number, line in enumerate((text(path) or "").splitlines(), 1)
        if OUTSIDE.search(line)
    ]
    assert found == []


def test_no_file_is_large() -> None:
    """No single file exceeds 5 MB."""
    assert [str(path.relative_to(ROOT)) for path in files() if path.stat().st_size > 5 * MB] == []


def test_data_stays_within_its_budget() -> None:
    """Recordings and golden files together stay within 25 MB."""
    folders = (ROOT / "tests/data", ROOT / "tests/golden")
    data = [path for path in files() if any(folder in path.parents for folder in folders)]
    assert sum(path.stat().st_size for path in data) <= 25 * MB


def test_readme_fits_one_reading() -> None:
    """The README has at most 150 lines and names the two commands."""
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) <= 150
    assert "make demo" in readme
    assert "make test" in readme


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link in a Markdown file points to a file or folder of the repository."""
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in files()
        if page.suffix == ".md"
        for target in LINK.findall(page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_licence_is_apache_2() -> None:
    """LICENSE is the whole text that pyproject.toml names."""
    licence = (ROOT / "LICENSE").read_text("utf-8")
    assert licence.lstrip().startswith("Apache License\n                           Version 2.0, January 2004")
    assert "END OF TERMS AND CONDITIONS" in licence
