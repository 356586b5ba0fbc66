"""The endpoint over real sockets on loopback."""

from __future__ import annotations

import gzip
import http.client
import json
import logging
import socket
from collections.abc import Callable, Iterator

import pytest

from spanlite.contract.columns import Kind
from spanlite.contract.errors import ExporterError
from spanlite.contract.points import Point, Series
from spanlite.exporters.server import MetricsServer
from spanlite.exporters.table import Counters, PointTable

MakePoint = Callable[..., Point]


@pytest.fixture
def table(make_point: MakePoint) -> PointTable:
    """One kernel."""
    table = PointTable()
    table.put([make_point(Series("GPU-1", Kind.KERNEL, "gemm"), [1000, 2000])])
    return table


@pytest.fixture
def server(table: PointTable) -> Iterator[MetricsServer]:
    """A running server on a free port."""
    with MetricsServer(table, port=0) as running:
        yield running


def ask(
    server: MetricsServer, path: str, *, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_metrics_are_served_as_text_by_default(server: MetricsServer) -> None:
    """Proves status, content type, length and a known line."""
    status, headers, body = ask(server, "/metrics?x=1")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(headers["Content-Length"]) == len(body)
    assert b'\nspanlite_kernel_launches_total{UUID="GPU-1",kernel="gemm"} 2.0\n' in body


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
        ),
    ],
)
def test_other_formats_are_served_when_asked_for(server: MetricsServer, accept: str, content_type: str) -> None:
    """Proves the negotiation over HTTP, and that answers are counted by format."""
    status, headers, body = ask(server, "/metrics", headers={"Accept": accept})
    assert (status, headers["Content-Type"]) == (200, content_type)
    assert b"spanlite_kernel_launches" in body
    word = b"openmetrics" if b"openmetrics" in accept.encode() else b"protobuf"
    assert b'spanlite_exporter_scrapes_total{format="%s"} 1.0' % word in ask(server, "/metrics")[2]


def test_answers_are_compressed_for_those_who_accept_it(server: MetricsServer) -> None:
    """Proves that the unpacked body is that of a plain answer, but for the counter of answers."""
    _, headers, packed = ask(server, "/metrics", headers={"Accept-Encoding": "gzip"})
    _, _, plain = ask(server, "/metrics")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed) == plain.replace(b'{format="text"} 2.0', b'{format="text"} 1.0')
    assert len(packed) < len(plain) / 2


def test_head_has_the_headers_and_no_body(server: MetricsServer) -> None:
    """Proves HEAD by the bytes on the wire: after the headers the connection ends."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = b"".join(iter(lambda: raw.recv(65536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: " in head
    assert body == b""


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/-/healthy", 200),
        ("GET", "/-/ready", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/nowhere", 404),
        ("GET", "/metrics/../../etc/passwd", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/metrics", 405),
        ("BREW", "/metrics", 501),
    ],
)
def test_paths_and_methods(server: MetricsServer, method: str, path: str, status: int) -> None:
    """Proves what is served and what is refused."""
    assert ask(server, path, method=method)[0] == status


def test_ready_only_once_there_is_something_to_tell(make_point: MakePoint) -> None:
    """Proves that a scrape of an empty exporter can be told from one of an idle GPU; healthy all the while."""
    table = PointTable()
    with MetricsServer(table, port=0) as server:
        assert (ask(server, "/-/ready")[0], ask(server, "/-/healthy")[0]) == (503, 200)
        status, headers, body = ask(server, "/metrics")
        assert (status, headers["Content-Type"]) == (503, "text/plain; charset=utf-8")
        assert body == b"no metrics yet; /-/ready tells when\n"
        table.put([])
        assert (ask(server, "/-/ready")[0], ask(server, "/metrics")[0]) == (200, 200)


def test_an_owner_says_when_the_table_is_whole(table: PointTable) -> None:
    """Proves that half a table, in which counters seem to have fallen, is not shown and not counted as an answer."""
    whole: list[int] = []
    with MetricsServer(table, port=0, ready=lambda: bool(whole)) as server:
        assert (ask(server, "/-/ready")[0], ask(server, "/metrics")[0]) == (503, 503)
        whole.append(1)
        status, _, body = ask(server, "/metrics")
    assert status == 200
    assert b'spanlite_exporter_scrapes_total{format="text"} 1.0' in body


def test_readiness_names_each_check_and_what_is_wrong(table: PointTable) -> None:
    """Proves /readyz as JSON, 503 while a check objects; metrics are shown all the same, /healthz never objects."""
    problems = {"socket": "", "kafka": "3 batches wait"}
    with MetricsServer(table, port=0, checks=lambda: problems) as server:
        status, headers, body = ask(server, "/readyz")
        assert (status, headers["Content-Type"]) == (503, "application/json")
        assert json.loads(body) == {
            "ready": False,
            "checks": {
                "metrics": {"ok": True},
                "socket": {"ok": True},
                "kafka": {"ok": False, "reason": "3 batches wait"},
            },
        }
        assert ask(server, "/metrics")[0] == 200
        assert json.loads(ask(server, "/healthz")[2]) == {"alive": True}
        problems["kafka"] = ""
        status, _, body = ask(server, "/readyz")
    assert (status, json.loads(body)["ready"]) == (200, True)


def test_readiness_waits_for_the_table() -> None:
    """Proves that an exporter without data is not ready there either, and says so."""
    with MetricsServer(PointTable(), port=0) as server:
        status, _, body = ask(server, "/readyz")
    told = {"ready": False, "checks": {"metrics": {"ok": False, "reason": "no data yet"}}}
    assert (status, json.loads(body)) == (503, told)


def test_one_connection_serves_many_scrapes(server: MetricsServer) -> None:
    """Proves keep-alive, as Prometheus uses it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/-/healthy")
        kept = connection.sock
        assert connection.getresponse().read() == b"healthy\n"
        assert connection.sock is kept
    connection.close()


def test_stop_ends_kept_connections_and_frees_the_port(table: PointTable) -> None:
    """Proves that nothing is served after stop, and that a new server may take the same port at once."""
    first = MetricsServer(table, port=0)
    first.start()
    port = first.port
    with socket.create_connection(("127.0.0.1", port), timeout=10) as kept:
        kept.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        while not kept.recv(65536).endswith(b"healthy\n"):
            pass
        first.stop()
        assert kept.recv(1) == b""
    with MetricsServer(table, port=port) as second:
        assert ask(second, "/-/healthy")[0] == 200
    first.stop()


def test_a_taken_port_is_one_clear_error(server: MetricsServer, table: PointTable) -> None:
    """Proves that the message names the port and the way out."""
    with pytest.raises(ExporterError, match=rf"127\.0\.0\.1 port {server.port}: Address already in use; .*--port 0"):
        MetricsServer(table, port=server.port).start()


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("a..b", 0), ("127.0.0.1", 70_000)])
def test_an_impossible_address_is_one_clear_error(table: PointTable, host: str, port: int) -> None:
    """Proves that a host that is not ours and a port that is none are told the same way."""
    with pytest.raises(ExporterError, match="cannot serve metrics on"):
        MetricsServer(table, host=host, port=port).start()


def test_errors_are_told_without_a_traceback(table: PointTable, caplog: pytest.LogCaptureFixture) -> None:
    """Proves that a failing own metric gives 500 with one line, or, if unforeseen, with nothing of its text."""

    def fail() -> Counters:
        raise RuntimeError("secret")

    with MetricsServer(table, port=0) as server, caplog.at_level(logging.ERROR):
        table.set_counters(lambda: {"spanlite_nonsense": [({}, 1)]})
        status, _, body = ask(server, "/metrics")
        assert (status, body.count(b"\n")) == (500, 1)
        assert b"spanlite_nonsense is not in the catalogue" in body
        table.set_counters(fail)
        status, _, body = ask(server, "/metrics")
        assert (status, body) == (500, b"metrics cannot be written; see the log\n")
        table.set_counters(dict)
        assert ask(server, "/metrics")[0] == 200


@pytest.mark.parametrize("sent", [b"", b"\0\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"x" * 70_000, b"G"])
def test_nonsense_on_the_wire_does_not_stop_the_server(server: MetricsServer, sent: bytes) -> None:
    """Proves that broken requests end their own connection only."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as rude:
        rude.sendall(sent)
    assert ask(server, "/-/healthy")[0] == 200


def test_idle_connections_are_limited(server: MetricsServer) -> None:
    """Proves that the 65th open connection is closed at once, and that places are free again afterwards."""
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(64)]
    for connection in idle:  # an answer shows that the server has taken it in
        connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as refused:
        assert refused.recv(1) == b""
    for connection in idle:
        connection.close()
    for _ in range(1000):
        try:
            assert ask(server, "/-/healthy")[0] == 200
        except (ConnectionError, http.client.HTTPException):
            continue
        return
    pytest.fail("no place became free")
