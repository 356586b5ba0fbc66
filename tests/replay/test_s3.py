"""Replays of an archive in an object store: a real S3 server, the command, both ways of reading."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanlite.contract.batch import Batch
from spanlite.pipeline.archive.write import write_batches
from tests.cli.process import refused, spanlite
from tests.pipeline.archive.s3 import S3Server
from tests.replay.archives import lines, read_file


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """A running S3 server."""
    with S3Server() as server:
        yield server


def test_an_archive_in_an_object_store_is_replayed(s3: S3Server, small: list[Batch], tmp_path: Path) -> None:
    """Unpaced, and paced with the archive read by another process: all spans; no word of the secret anywhere."""
    write_batches(s3.uri("traces"), small)
    for name, words in {"plain": [], "paced": ["--qps", "2000", "--mode", "precise"]}.items():
        out = tmp_path / f"{name}.spans"
        done = spanlite("replay", "run", s3.uri("traces"), "--to", "file", "-o", out, *words)
        assert done.returncode == 0, done.stderr
        assert lines(read_file(out)) == lines(small)
        said = done.stderr + (tmp_path / f"{name}.spans.json").read_text()
        assert "hush" not in said
    facts = json.loads((tmp_path / "plain.spans.json").read_text())
    assert facts["archive"]["where"].startswith("s3://")


def test_a_bucket_that_is_not_there_is_told_in_one_line(s3: S3Server) -> None:
    """Before anything is written, without the secret."""
    done = spanlite("replay", "run", s3.uri("traces", bucket="none"), "--to", "stdout")
    refused(done, "none")
    assert "hush" not in done.stderr
