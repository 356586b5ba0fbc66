"""Archives in an S3-compatible object store: an object appears when its upload is complete."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.port import File

_DELETES = 16
"""Requests at a time: the shorter a removal, the shorter other engines see a compacted file beside its inputs."""
_T = TypeVar("_T")
_CAUSES = {
    "cannot be reached; check the endpoint and the network": ("NETWORK_CONNECTION", "curlCode", "Could not connect"),
    "no permission; check the credentials and what they may do there": (
        "ACCESS_DENIED",
        "ACCESS DENIED",
        "INVALID_ACCESS_KEY_ID",
        "SIGNATURE_DOES_NOT_MATCH",
        "INVALID_CLIENT_TOKEN_ID",
        "HTTP status 403",
    ),
    "no such bucket; create it or correct the name": ("NO_SUCH_BUCKET", "not found"),
}
"""What to say, and the words of the AWS library by which it is known."""


def without_credentials(uri: str) -> str:
    """A URI for people: no key, no secret, no options."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2].rstrip('/')}"


def open_s3(uri: str) -> RemoteStore:
    """The store at `s3://bucket/prefix?…`.

    Raises:
        ArchiveError: malformed, no such bucket, no permission, or nobody answers.
    """
    where = without_credentials(uri)
    try:
        filesystem, base = fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # its text would show the URI with all that is in it
        raise ArchiveError(
            f"{where}: no valid URI; write s3://bucket/prefix?endpoint_override=host:port&scheme=http, with special "
            "characters of a secret as %XX, or leave key and secret to the environment"
        ) from None
    except OSError as error:
        raise _told(where, error) from error
    store = RemoteStore(where, filesystem, base.rstrip("/"))
    store.check_bucket()
    return store


class RemoteStore:
    """A prefix of a bucket. There are no locks: one compaction at a time, and one writer per producer."""

    remote = True

    def __init__(self, where: str, filesystem: Any, base: str) -> None:
        self.where = where
        self.filesystem = filesystem
        self.base = base

    def check_bucket(self) -> None:
        """Finds out whether the bucket is there.

        Raises:
            ArchiveError: it is not, or cannot be asked.
        """
        bucket = self.base.partition("/")[0]
        if self._do(lambda: self.filesystem.get_file_info(bucket)).type == fs.FileType.NotFound:
            raise ArchiveError(f"{self.where}: no such bucket; create it or correct the name")

    def files(self, folder: str = "") -> list[File]:
        path = self._path(folder)
        selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
        found = self._do(lambda: self.filesystem.get_file_info(selector))
        skip = len(self.base) + 1
        return sorted(File(info.path[skip:], info.size) for info in found if info.type == fs.FileType.File)

    def exists(self, name: str) -> bool:
        if not name:
            return True
        return bool(self._do(lambda: self.filesystem.get_file_info(self._path(name))).type != fs.FileType.NotFound)

    def read(self, name: str) -> Any:
        return self._do(lambda: self.filesystem.open_input_file(self._path(name)))

    @contextmanager
    def write(self, name: str) -> Iterator[Any]:
        """Spools to a local temporary file first, and holds as much memory as the file has bytes while it uploads.

        A stream of pyarrow publishes what it has when it is dropped, whole or not. So it only ever gets a whole file in
        one piece, by a thread that no signal handler can interrupt between opening it and the last byte.
        """
        with tempfile.TemporaryFile(prefix="spanlite-") as spool:
            yield spool
            spool.flush()
            with ThreadPoolExecutor(1) as uploader:
                uploader.submit(self._do, lambda: self._upload(name, spool.fileno())).result()

    def _upload(self, name: str, spool: int) -> None:
        size = os.fstat(spool).st_size
        path = self._path(name)
        stream = self.filesystem.open_output_stream(path)
        if size:
            with mmap.mmap(spool, size, access=mmap.ACCESS_READ) as whole:
                stream.write(whole)
        stream.close()
        arrived = self.filesystem.get_file_info(path).size
        if arrived != size:
            raise ArchiveError(f"{self.where}/{name}: holds {arrived} of {size} bytes; remove it and write it again")

    def delete(self, names: Sequence[str]) -> None:
        if names:
            with ThreadPoolExecutor(min(_DELETES, len(names))) as pool:
                removals = [pool.submit(self._delete, name) for name in names]
            for removal in removals:  # only now: one that fails keeps no other from being done
                removal.result()

    def settle(self, folder: str) -> None:
        """Nothing to do: what a listing shows is durable."""

    def prepare(self) -> None:
        """Nothing to do: the bucket is there, and a prefix needs no making. A missing right shows at the first file."""

    def lock(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002  # there are none
        return nullcontext()

    def _delete(self, name: str) -> None:
        try:
            self._do(lambda: self.filesystem.delete_file(self._path(name)))
        except FileNotFoundError:  # removed already, as wanted
            return

    def _path(self, name: str) -> str:
        return f"{self.base}/{name}" if name else self.base

    def _do(self, request: Callable[[], _T]) -> _T:
        try:
            return request()
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise _told(self.where, error) from error


def _told(where: str, error: BaseException) -> ArchiveError:
    text = " ".join(str(error).split())
    for sentence, words in _CAUSES.items():
        if any(word in text for word in words):
            return ArchiveError(f"{where}: {sentence} ({text})")
    return ArchiveError(f"{where}: the object store failed ({text}); try again")
