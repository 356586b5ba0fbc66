"""The metrics endpoint over HTTP: on loopback unless told otherwise, and never with an internal error's text."""

from __future__ import annotations

import gzip
import logging
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Lock, Thread

from spanlite.contract.errors import ExporterError, SpanliteError
from spanlite.exporters.families import families
from spanlite.exporters.formats import TEXT, accepts_gzip, choose
from spanlite.exporters.readiness import readiness
from spanlite.exporters.table import PointTable

_Checks = Callable[[], Mapping[str, str]]
_Request = socket.socket | tuple[bytes, socket.socket]
_LOG = logging.getLogger(__name__)
_CONNECTIONS = 64
_IDLE_TIMEOUT_S = 15.0
_GZIP_FROM_BYTES = 1024
_INDEX = b"""<!doctype html><html lang="en"><title>spanlite</title><h1>spanlite</h1><ul>
<li><a href="/metrics">/metrics</a></li><li><a href="/-/healthy">/-/healthy</a></li>
<li><a href="/-/ready">/-/ready</a></li>
<li><a href="/healthz">/healthz</a></li><li><a href="/readyz">/readyz</a></li></ul></html>
"""


class MetricsServer:
    """Serves a table: /metrics and /-/ready (503 until all is there that is to be told), /-/healthy (always 200), /.

    /healthz and /readyz tell the same as JSON, as orchestrators ask for it; there the owner's checks may object.
    """

    def __init__(
        self,
        table: PointTable,
        *,
        host: str = "127.0.0.1",
        port: int = 9464,
        ready: Callable[[], bool] | None = None,
        checks: _Checks = dict,
    ) -> None:
        """Creates a server.

        Args:
            port: 0 takes a free one.
            ready: whether the table can be shown, by default once it was put to.
            checks: for /readyz, name → what is wrong, or nothing; metrics are shown in any case.
        """
        self._table = table
        self._address = (host, port)
        self._ready = ready or (lambda: table.loaded)
        self._checks = checks
        self._http: _Server | None = None
        self._thread: Thread | None = None

    @property
    def port(self) -> int:
        """The port listened on, or, before start, the one asked for."""
        return int(self._http.server_address[1]) if self._http else self._address[1]

    @property
    def url(self) -> str:
        """Address of the metrics, for people and scrapers."""
        host = self._address[0]
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def start(self) -> None:
        """Listens and serves from threads of its own.

        Raises:
            ExporterError: the port is taken, or host and port cannot be listened on.
        """
        host, port = self._address
        try:
            self._http = _Server(self._address, self._table, self._ready, self._checks)
        except (OSError, OverflowError, UnicodeError) as error:  # taken, not ours; port above 65535; no host name
            reason = getattr(error, "strerror", None) or error
            raise ExporterError(
                f"cannot serve metrics on {host} port {port}: {reason}; "
                "choose another with --port, or --port 0 for any free one"
            ) from error
        self._thread = Thread(target=self._http.serve_forever, args=(0.05,), name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Closes the port and all connections; does nothing when not started."""
        if self._http and self._thread:
            self._http.shutdown()
            self._thread.join()
            self._http.server_close()
            self._http.close_connections()
        self._http = self._thread = None

    def __enter__(self) -> MetricsServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], table: PointTable, ready: Callable[[], bool], checks: _Checks) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.table = table
        self.ready = ready
        self.checks = checks
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Binds without HTTPServer's look-up of the host's full name, which may wait for a name server."""
        TCPServer.server_bind(self)

    def verify_request(self, request: _Request, client_address: object) -> bool:  # noqa: ARG002  # socketserver's
        """Refuses connections beyond the limit, so that idle ones cannot take all threads."""
        if not isinstance(request, socket.socket):
            return False
        with self._lock:
            if len(self._open) >= _CONNECTIONS:
                return False
            self._open.add(request)
            return True

    def shutdown_request(self, request: _Request) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Ends the kept connections, whose threads then finish."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):  # the other side was faster
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: _Request, client_address: object) -> None:  # noqa: ARG002  # socketserver's
        """Logs instead of printing; a client that goes away is no event."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _LOG.error("metrics endpoint failed to answer", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:
        """Answers the known paths."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/-/healthy":
            self._text(HTTPStatus.OK, "healthy\n")
        elif path == "/-/ready":
            ready = self.server.ready()
            self._text(*((HTTPStatus.OK, "ready\n") if ready else (HTTPStatus.SERVICE_UNAVAILABLE, "no data yet\n")))
        elif path == "/healthz":
            self._send(HTTPStatus.OK, b'{"alive": true}\n', "application/json")
        elif path == "/readyz":
            problems = {"metrics": "" if self.server.ready() else "no data yet", **self.server.checks()}
            self._send(*readiness(problems), "application/json", {"Cache-Control": "no-store"})
        elif path == "/":
            self._send(HTTPStatus.OK, _INDEX, "text/html; charset=utf-8")
        else:
            self._text(HTTPStatus.NOT_FOUND, "not found; metrics are at /metrics\n")

    def do_HEAD(self) -> None:
        """Answers like GET, without the body."""
        self.do_GET()

    def do_POST(self) -> None:
        """Refuses: nothing here can be changed."""
        self.close_connection = True  # a body may follow, which nobody reads
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n", TEXT.content_type, {"Allow": "GET, HEAD"})

    def do_PUT(self) -> None:
        """Refuses likewise."""
        self.do_POST()

    def do_DELETE(self) -> None:
        """Refuses likewise."""
        self.do_POST()

    def version_string(self) -> str:
        """Names no versions to strangers."""
        return "spanlite"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is BaseHTTPRequestHandler's
        """Keeps the answers, which come every few seconds, for debugging alone."""
        _LOG.debug(format, *args)

    def _metrics(self) -> None:
        if not self.server.ready():  # half a table would look like counters that have fallen
            self._text(HTTPStatus.SERVICE_UNAVAILABLE, "no metrics yet; /-/ready tells when\n")
            return
        chosen = choose(", ".join(self.headers.get_all("Accept", [])))
        try:
            self.server.table.count_scrape(chosen.word)
            body = chosen.write(families(self.server.table.snapshot()))
        except SpanliteError as error:
            _LOG.error("metrics cannot be written: %s", error)
            self._text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{error}\n")
            return
        except BaseException:
            self.close_connection = True
            self._text(HTTPStatus.INTERNAL_SERVER_ERROR, "metrics cannot be written; see the log\n")
            raise
        headers = {"Vary": "Accept, Accept-Encoding", "Cache-Control": "no-store"}
        if len(body) >= _GZIP_FROM_BYTES and accepts_gzip(self.headers.get("Accept-Encoding", "")):
            body = gzip.compress(body, compresslevel=4)
            headers["Content-Encoding"] = "gzip"
        self._send(HTTPStatus.OK, body, chosen.content_type, headers)

    def _text(self, status: HTTPStatus, text: str) -> None:
        self._send(status, text.encode(), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, body: bytes, content_type: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
