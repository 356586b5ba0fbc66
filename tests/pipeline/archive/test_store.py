"""The places that an archive can lie in: one suite on a local disk and on a real S3 server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.port import File, Store, label
from spanlite.pipeline.archive.remote import RemoteStore, without_credentials
from spanlite.pipeline.archive.store import open_store
from tests.pipeline.archive.proxy import StuckProxy
from tests.pipeline.archive.s3 import S3Server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """A running S3 server."""
    with S3Server() as server:
        yield server


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "local":
        return open_store(tmp_path / "archive")
    server: S3Server = request.getfixturevalue("s3")
    return open_store(server.uri(f"{tmp_path.name}/archive"))


def put(store: Store, name: str, data: bytes) -> None:
    with store.write(name) as file:
        file.write(data)


def test_what_is_written_is_listed_and_read_in_any_order(store: Store) -> None:
    """Names with their sizes, in order; reads may seek; a file written again is replaced."""
    store.prepare()
    put(store, "a=1/b=2/two", b"0123456789")
    put(store, "a=1/b=1/one", b"one")
    put(store, "a=1/b=1/one", b"once")
    assert store.files() == [File("a=1/b=1/one", 4), File("a=1/b=2/two", 10)]
    assert store.files("a=1/b=2") == [File("a=1/b=2/two", 10)]
    with store.read("a=1/b=2/two") as file:
        file.seek(7)
        assert file.read() == b"789"
        file.seek(1)
        assert file.read(2) == b"12"
    assert (store.files()[0].base, store.files()[0].folder) == ("one", "a=1/b=1")


def test_nothing_is_there_before_and_nothing_after(store: Store) -> None:
    """Empty folders list as empty, missing files are FileNotFoundError, and deleting twice is no error."""
    store.prepare()
    assert store.files() == store.files("a=1") == []
    assert store.exists("")
    assert not store.exists("a=1/x")
    with pytest.raises(FileNotFoundError):
        store.read("a=1/x")
    for name in ("x", "y", "z"):
        put(store, f"a=1/{name}", b"")
    assert store.exists("a=1/x")
    store.settle("a=1")
    store.delete(["a=1/x", "a=1/y", "a=1/none"])
    store.delete([])
    assert store.files() == [File("a=1/z", 0)]


def test_a_write_that_fails_leaves_what_was_there(store: Store) -> None:
    """An error within the writing, of whatever kind: no new file, no half one, and the old one stays."""
    store.prepare()
    put(store, "a=1/old", b"old")

    def fail(name: str) -> None:
        with store.write(name) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    for name in ("a=1/old", "a=1/new"):
        with pytest.raises(KeyboardInterrupt):
            fail(name)
    assert store.files() == [File("a=1/old", 3)]


def test_large_files_arrive_whole(store: Store) -> None:
    """Larger than the parts in which an object store takes them."""
    store.prepare()
    data = np.random.default_rng(1).bytes((20 << 20) + 7)
    put(store, "a=1/large", data)
    with store.read("a=1/large") as file:
        assert file.read() == data


def test_a_store_is_handed_back_as_it_is(store: Store) -> None:
    """Functions that take a folder or a URI take a store that is open too."""
    assert open_store(store) is store


def test_local_locks_keep_others_out(tmp_path: Path) -> None:
    """A second holder is told at once, and not once the first has gone."""
    one, other = open_store(tmp_path), open_store(f"file://{tmp_path}")
    with one.lock("lock"), pytest.raises(ArchiveError, match="lock is locked by another process"), other.lock("lock"):
        pass
    with other.lock("lock"):
        pass


def test_folders_that_are_not_the_archives_are_not_looked_into(tmp_path: Path) -> None:
    """Such as lost+found, which nobody but root may read."""
    store = open_store(tmp_path)
    put(store, "date=1/x", b"")
    for name in ("lost+found", ".staging-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "y").touch()
    assert store.files() == [File("date=1/x", 0)]


def test_texts_name_places_without_credentials(s3: S3Server, tmp_path: Path) -> None:
    """Neither secret nor options stand in what people see; local names are paths that open."""
    assert label(open_store(s3.uri("a/b")), "x") == "s3://traces/a/b/x"
    assert without_credentials("s3://key:se/cr@et@bucket/prefix/?a=b") == "s3://bucket/prefix"
    assert label(open_store(str(tmp_path)), "x") == str(tmp_path / "x")
    assert open_store("file:///tmp/a%20b").where == "/tmp/a b"  # noqa: S108  # only a name


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("gs://bucket/x", "gs://bucket/x: an archive lies in a local folder or at s3://bucket/prefix, not at gs://"),
        ("s3://key:hush@bucket/x?nonsense=1", "s3://bucket/x: no valid URI"),
        ("s3://key:hu/sh@bucket/x?region=us-east-1", "s3://bucket/x: no valid URI"),
        (
            "s3://key:hush@bucket/x?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1",
            "s3://bucket/x: cannot be reached; check the endpoint and the network",
        ),
    ],
)
def test_a_uri_that_leads_nowhere_is_an_error(uri: str, told: str) -> None:
    """Each with its cause, and never with the secret."""
    with pytest.raises(ArchiveError, match=re.escape(told)) as failed:
        open_store(uri)
    assert "hush" not in str(failed.value)
    assert "hu/sh" not in str(failed.value)


def test_a_missing_bucket_is_an_error(s3: S3Server) -> None:
    """When it is opened, and when it goes afterwards."""
    with pytest.raises(ArchiveError, match=r"s3://none/x: no such bucket; create it or correct the name"):
        open_store(s3.uri("x", bucket="none"))
    store = RemoteStore("s3://none/x", s3.filesystem, "none/x")
    with pytest.raises(ArchiveError, match="no such bucket"), store.write("a") as file:
        file.write(b"x")


def test_a_missing_permission_is_an_error(tmp_path: Path) -> None:
    """A server that knows no such key: said for opening, listing, reading, writing and deleting alike."""
    with S3Server() as server:
        store = open_store(server.uri("x"))
        put(store, "a", b"x")
        server.demand_permission()

        def write() -> None:
            put(store, "b", b"x")

        calls: list[Callable[[], object]] = [
            lambda: open_store(server.uri("x")),
            store.files,
            lambda: store.read("a"),
            write,
            lambda: store.delete(["a"]),
        ]
        for call in calls:
            with pytest.raises(ArchiveError, match=r"s3://traces/x: no permission; check the credentials"):
                call()


_UPLOAD = """
import sys
import numpy as np
from spanlite.pipeline.archive.store import open_store
with open_store(sys.argv[1]).write("a/large") as file:
    file.write(np.random.default_rng(1).bytes(40 << 20))
"""


def test_a_writer_killed_in_mid_upload_leaves_nothing_visible(s3: S3Server) -> None:
    """SIGKILL when 15 of 40 MB are sent: no object; the next writer's object is whole."""
    with StuckProxy(s3.port, 15 << 20) as proxy:
        child = subprocess.Popen(
            [sys.executable, "-c", _UPLOAD, s3.uri("killed", port=proxy.port)], env={"PYTHONPATH": ":".join(sys.path)}
        )
        assert proxy.stuck.wait(120)
        child.send_signal(signal.SIGKILL)
        assert child.wait(30) == -signal.SIGKILL
    assert s3.objects("killed") == {}
    put(open_store(s3.uri("killed")), "a/large", b"x" * (12 << 20))
    assert s3.objects("killed") == {"a/large": 12 << 20}


def test_an_upload_that_breaks_leaves_nothing_visible(s3: S3Server) -> None:
    """Connections break half-way and stay broken: an error that says so, and no object, also once memory is freed."""
    data = os.urandom(30 << 20)
    with StuckProxy(s3.port, 12 << 20, reset=True) as proxy:
        store = open_store(s3.uri("broken", port=proxy.port))
        with pytest.raises(ArchiveError, match="s3://traces/broken: "):
            put(store, "large", data)
        assert s3.objects("broken") == {}
    del store
    assert s3.objects("broken") == {}
