"""Opening the place that an archive lies in: a local folder, or an S3-compatible object store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.local import LocalStore
from spanlite.pipeline.archive.port import Store
from spanlite.pipeline.archive.remote import open_s3, without_credentials

Where = str | Path | Store
"""What names an archive: a folder, a URI, or a store that is open."""


def open_store(where: Where) -> Store:
    """The store of an archive; a store is handed back as it is.

    Args:
        where: a local folder; or text: `file:///folder`, or `s3://bucket/prefix?key=value&…` with the keys that
            pyarrow.fs.FileSystem.from_uri takes (`endpoint_override`, `scheme`, `region`, …). Credentials are those of
            the AWS chain (environment, profile, role), or `s3://key:secret@bucket/prefix`.

    Raises:
        ArchiveError: another scheme, a malformed URI, no such bucket, no permission, or nobody answers.
    """
    if isinstance(where, Path):
        return LocalStore(where)
    if not isinstance(where, str):
        return where
    scheme, found, rest = where.partition("://")
    if not found:
        return LocalStore(Path(where))
    if scheme == "file":
        return LocalStore(Path("/" + unquote(rest).lstrip("/")))
    if scheme == "s3":
        return open_s3(where)
    raise ArchiveError(
        f"{without_credentials(where)}: an archive lies in a local folder or at s3://bucket/prefix, not at {scheme}://"
    )
