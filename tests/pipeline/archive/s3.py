"""An S3 server for tests: moto's, as a process of its own on a free port of the loopback."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from types import TracebackType
from typing import Any

from pyarrow import fs

BUCKET = "traces"


class S3Server:
    """A server with one empty bucket; it ends with the context.

    Attributes:
        port: where it listens.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path), "INITIAL_NO_AUTH_ACTION_COUNT": "1000000"},
        )
        self._log: list[str] = []
        self._listening = threading.Event()
        self.port = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._listening.wait(60) or not self.port:
            self.close()
            raise RuntimeError("the S3 server does not start:\n" + "".join(self._log))
        self.filesystem.create_dir(BUCKET)

    def __enter__(self) -> S3Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def uri(self, prefix: str, *, port: int | None = None, bucket: str = BUCKET) -> str:
        """A URI of the bucket, through another port if one is given; the secret is `hush`."""
        options = f"endpoint_override=127.0.0.1:{port or self.port}&scheme=http&region=us-east-1"
        return f"s3://key:hush@{bucket}/{prefix}?{options}"

    @property
    def filesystem(self) -> Any:
        """pyarrow's view of the server, not through the code under test."""
        return fs.S3FileSystem(
            access_key="key",
            secret_key="hush",  # noqa: S106  # moto takes any
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def objects(self, prefix: str) -> dict[str, int]:
        """Names below a prefix, and bytes, as the server lists them."""
        selector = fs.FileSelector(f"{BUCKET}/{prefix}", recursive=True, allow_not_found=True)
        found = self.filesystem.get_file_info(selector)
        return {i.path.removeprefix(f"{BUCKET}/{prefix}/"): i.size for i in found if i.type == fs.FileType.File}

    def demand_permission(self) -> None:
        """From now on refuses all keys, since none is known to it."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310  # likewise
            answer.read()

    def close(self) -> None:
        """Ends the process, and waits for it."""
        self._process.terminate()
        self._process.wait(30)
        self._reader.join(30)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                self._listening.set()
        self._listening.set()  # it has ended
