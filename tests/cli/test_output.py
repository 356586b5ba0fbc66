"""Files that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanlite.cli.output import progress_bar, staged_archive, whole_file
from spanlite.contract.errors import ArchiveError, UsageError


def fail_after(_done: object) -> None:
    """Fails."""
    raise KeyError


def write_part(staging: Path, text: str = "x", *, date: str = "1970-01-01") -> str:
    """A file in a staging folder; where it must end up."""
    relative = f"date={date}/hour=00/bucket=00/a.parquet"
    file = staging / relative
    file.parent.mkdir(parents=True)
    file.write_text(text)
    return relative


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    """Proves that the old content stays until the end, and that nothing else is left."""
    path = tmp_path / "f"
    path.write_text("old")
    with whole_file(path) as stream:
        stream.write("new")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    """Proves that an error passes through, and that neither content nor temporary file stays."""
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), whole_file(path, binary=True) as stream:
        fail_after(stream.write(b"new"))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_dash_is_standard_output(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Proves it for text and for bytes."""
    with whole_file(Path("-")) as stream:
        stream.write("text")
        stream.flush()
    with whole_file(Path("-"), binary=True) as stream:
        stream.write(b"\xff")
        stream.flush()
    assert capsysbinary.readouterr().out == b"text\xff"


def test_a_full_device_is_a_usage_error() -> None:
    """Proves that the error names the file, not a number."""
    with pytest.raises(UsageError, match="/dev/full: No space left"), whole_file(Path("/dev/full")) as stream:
        stream.write("x")


def test_a_device_is_written_to_and_stays_one() -> None:
    """Proves that what is no regular file is not replaced."""
    with whole_file(Path("/dev/null")) as stream:
        stream.write("x")
    assert Path("/dev/null").is_char_device()


def test_an_archive_is_published_at_the_end(tmp_path: Path) -> None:
    """Proves that the files move at once, and that no staging folder stays."""
    root = tmp_path / "a" / "b"
    with staged_archive(root) as staging:
        relative = write_part(staging)
        assert not (root / relative).exists()
    assert (root / relative).read_text() == "x"
    assert [path.name for path in root.iterdir()] == ["date=1970-01-01"]


def test_a_failure_leaves_no_folder_that_was_not_there(tmp_path: Path) -> None:
    """Proves that all folders made for a new archive go away again."""
    with pytest.raises(KeyError), staged_archive(tmp_path / "a" / "b") as staging:
        fail_after(write_part(staging))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_what_others_put_there_meanwhile(tmp_path: Path) -> None:
    """Proves that only empty folders are removed."""
    root = tmp_path / "a" / "b"
    with pytest.raises(KeyError), staged_archive(root):
        fail_after((root / "other").write_text("x"))
    assert [path.name for path in root.iterdir()] == ["other"]


def test_two_writers_share_an_archive(tmp_path: Path) -> None:
    """Proves that the second sweeps nothing of the first, which still lives."""
    with staged_archive(tmp_path) as first:
        relative = write_part(first, "first")
        with staged_archive(tmp_path) as second:
            assert first != second
        assert (first / relative).exists()
    assert (tmp_path / relative).read_text() == "first"


def test_what_the_dead_left_is_swept(tmp_path: Path) -> None:
    """Proves that a staging folder that nobody holds is removed with all it has."""
    write_part(tmp_path / ".staging-x")
    (tmp_path / ".other").mkdir()
    with staged_archive(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [".other"]


def test_what_blocks_the_target_is_found_before_anything_moves(tmp_path: Path) -> None:
    """Proves that of two files none moves when the second's folder cannot be made."""
    (tmp_path / "date=2000-01-01").write_text("in the way")
    with pytest.raises(ArchiveError, match="cannot hold an archive"), staged_archive(tmp_path) as staging:
        write_part(staging), write_part(staging, date="2000-01-01")
    assert list(tmp_path.rglob("*.parquet")) == []


def test_no_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Proves that logs stay free of it."""
    draw = progress_bar("x", quiet=False)
    draw(1, 2)
    draw(2, 2)
    assert capsys.readouterr().err == ""


def test_the_bar_ends_its_line_when_all_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves half, whole and empty input on a terminal."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    draw = progress_bar("x", quiet=False)
    draw(1, 2)
    assert capsys.readouterr().err == f"\r{'x':40} [{'#' * 15}{' ' * 15}]  50%"
    draw(2, 2)
    assert capsys.readouterr().err == f"\r{'x':40} [{'#' * 30}] 100%\n"
    progress_bar("x", quiet=False)(0, 0)
    assert capsys.readouterr().err.endswith("100%\n")
