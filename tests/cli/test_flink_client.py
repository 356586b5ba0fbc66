"""How a job is handed to Flink's client; the interpreter that has PyFlink is stood in for."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from spanlite.cli import flink_client
from spanlite.cli.commands import pipeline
from spanlite.contract.errors import UsageError


def arguments(*words: str) -> argparse.Namespace:
    """What `spanlite pipeline submit` makes of its words."""
    parser = argparse.ArgumentParser()
    pipeline.add_arguments(parser)
    return parser.parse_args(["submit", "--flink-python", "python3", *words])


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(flink_client, "_asked", lambda _python, _code: str(tmp_path / "there"))


def command(*words: str) -> str:
    """The client's command line as text."""
    return " ".join(flink_client.submit_command(arguments(*words), wait=False))


def test_a_prefix_names_topics_and_group(tmp_path: Path) -> None:
    """Cells on one broker would read each other's spans, or take turns at one group's offsets."""
    said = command("--prefix", "cell-7", "--bootstrap", "kafka:9092")
    assert f"{tmp_path}/there/bin/flink run --detached" in said
    assert said.count("cell-7.") == 4
    assert "--spans cell-7.spans --group cell-7-metrics " in said
    assert "--fromSavepoint" not in said


def test_a_longer_retention_is_told_to_the_job() -> None:
    """A job that forgets a producer while the topic still has its batches would count them again."""
    assert " --retain 720h " in command("--retain", "720h")
    said = command("--job", "archive", "--archive", "s3://b/t", "--retain", "720h", "--file-spans", "1000")
    assert " --retain 720h " in said
    assert said.endswith(" --archive s3://b/t --buckets 1 --file-spans 1000 --flush 60s")


def test_it_goes_on_from_the_newest_checkpoint_below_a_folder(tmp_path: Path) -> None:
    """An older one, or one that was not finished, would count what came after it in vain, or not restore."""
    for number, at in ((3, 300), (4, 400), (2, 200)):
        folder = tmp_path / f"job/chk-{number}"
        folder.mkdir(parents=True)
        (folder / "_metadata").touch()
        os.utime(folder / "_metadata", (at, at))
    (tmp_path / "job/chk-5").mkdir()
    assert f"--fromSavepoint file://{tmp_path}/job/chk-4 " in command("--resume", str(tmp_path))
    assert f"--fromSavepoint file://{tmp_path}/job/chk-2 " in command("--resume", str(tmp_path / "job/chk-2"))
    with pytest.raises(UsageError, match="no savepoint or checkpoint there"):
        command("--resume", str(tmp_path / "job/chk-5"))


@pytest.mark.parametrize("uri", ["s3://bucket/savepoints/savepoint-1", "file:/savepoints/savepoint-1"])
def test_a_uri_is_left_to_flink(uri: str) -> None:
    """State on an object store, or the path as `flink stop` prints it, could not be resumed from."""
    assert f"--fromSavepoint {uri} " in command("--resume", uri)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--job", "archive"], "--archive is missing"),
        (["-X", "security.protocol=SSL"], "--java-property"),
        (["--security-file", "kafka.properties"], "--java-property"),
    ],
)
def test_what_the_job_would_not_know_is_refused(words: list[str], said: str) -> None:
    """A job that silently runs without TLS, or has nowhere to write, would be told by nobody."""
    with pytest.raises(UsageError, match=said):
        command(*words)
