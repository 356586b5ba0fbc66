"""A whole archive in an object store: a real S3 server, through flush, reading, listing, checking and compaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from spanlite.cli.main import main
from spanlite.contract.batch import Batch
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.compact import compact
from spanlite.pipeline.archive.flush import flush_new
from spanlite.pipeline.archive.ledger import Ledger
from spanlite.pipeline.archive.read import open_dataset, read_batches
from spanlite.pipeline.archive.store import open_store
from spanlite.pipeline.archive.verify import verify
from spanlite.pipeline.archive.write import ArchiveWriter, write_batches
from tests.pipeline.archive.s3 import BUCKET, S3Server

FactsOf = Callable[[Batch], dict[str, list[Any]]]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """A running S3 server."""
    with S3Server() as server:
        yield server


def test_an_archive_in_an_object_store_is_like_one_on_disk(
    s3: S3Server, tmp_path: Path, batches: list[Batch], facts: FactsOf
) -> None:
    """The same names, rows and values as a local one; redelivery adds nothing; compaction and verify agree."""
    store = open_store(s3.uri("whole"))
    for batch in batches[:2]:
        flush_new(store, [batch], buckets=2, ledger=Ledger())
        flush_new(open_store(tmp_path), [batch], buckets=2, ledger=Ledger())
    assert store.files() == open_store(tmp_path).files()
    assert flush_new(store, batches, buckets=2, ledger=Ledger()).spans_skipped == 8016
    assert [facts(batch) for batch in read_batches(store)] == [facts(batch) for batch in batches]
    assert verify(store).problems == []
    done = compact(store)
    assert [(entry.files_before, entry.files_after, entry.duplicates) for entry in done] == [(3, 1, 0), (3, 1, 0)]
    assert len(s3.objects("whole")) == 2
    assert [facts(batch) for batch in read_batches(store)] == [facts(batch) for batch in batches]
    assert verify(store).problems == []
    assert flush_new(store, batches, buckets=2, ledger=Ledger()).spans_skipped == 20040
    assert open_dataset(store).count_rows() == 20040
    other = ds.dataset(f"{BUCKET}/whole", filesystem=s3.filesystem, partitioning="hive", format="parquet")
    assert other.count_rows() == 20040


def test_the_writer_takes_a_uri(s3: S3Server, batches: list[Batch], facts: FactsOf) -> None:
    """ArchiveWriter and read_batches, with nothing opened before."""
    uri = s3.uri("writer")
    assert write_batches(uri, batches) == 20040
    assert [facts(batch) for batch in read_batches(uri)] == [facts(batch) for batch in batches]
    with pytest.raises(ArchiveError, match="no such bucket"):
        ArchiveWriter(s3.uri("x", bucket="none"))


def test_an_empty_prefix_holds_no_archive(s3: S3Server) -> None:
    """Prefixes need no making, so nothing there is an archive without files."""
    with pytest.raises(ArchiveError, match="s3://traces/empty: holds no archive files"):
        list(read_batches(s3.uri("empty")))
    assert compact(s3.uri("empty")) == []


def test_the_commands_take_a_uri(s3: S3Server, batches: list[Batch], capsys: pytest.CaptureFixture[str]) -> None:
    """ls, verify, compact and summary; paths come without credentials."""
    uri = s3.uri("commands")
    for batch in batches[:2]:
        write_batches(uri, [batch])
    assert main(["archive", "ls", uri, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["spans"] for entry in listed] == [4008, 4008]
    assert sorted(entry["path"] for entry in listed) == sorted(
        f"s3://traces/commands/{n}" for n in s3.objects("commands")
    )
    assert main(["archive", "compact", uri]) == 0
    assert "2 files, " in capsys.readouterr().out
    assert main(["archive", "verify", uri]) == 0
    assert capsys.readouterr().out.startswith("1 files, 8,016 spans, ")
    assert main(["summary", uri, "--json"]) == 0
    assert sum(line["instances"] for line in json.loads(capsys.readouterr().out)) == 8000
    assert main(["archive", "ls", s3.uri("x", bucket="none")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("spanlite: s3://none/x: no such bucket")
    assert "hush" not in said.err + said.out


def test_a_compaction_that_fails_half_way_is_completed_by_the_next(
    s3: S3Server, batches: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses one removal: readers still see each span once, and the next run cleans up."""
    store = open_store(s3.uri("half"))
    for batch in batches[:3]:
        flush_new(store, [batch], ledger=Ledger())
    whole = type(store)._delete  # type: ignore[attr-defined]  # of the remote one
    first = store.files()[0].name

    def refuse(self: Any, name: str) -> None:
        if name == first:
            raise ArchiveError("the object store failed")
        whole(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "_delete", refuse)
        with pytest.raises(ArchiveError, match="the object store failed"):
            compact(store)
    assert len(store.files()) == 2
    assert open_dataset(store).count_rows() == 12024
    assert len(compact(store)) == 1
    assert len(store.files()) == 1
    assert verify(store).problems == []
