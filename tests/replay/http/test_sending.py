"""`spanlite replay run --to http`: each trace once, in order, in any turn; how it ends, what it says and writes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spanlite.runtime.clock import SystemClock
from tests.replay.http.conftest import Row, duration_of, roots_of, start_of
from tests.replay.http.service import OK, Seen, Service, status
from tests.replay.http.test_client import free_port

CLOCK = SystemClock()
Sent = Callable[..., int]
Traces = dict[bytes, list[Row]]


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_trace_is_one_request_in_order(sent: Sent, traces: Traces, tmp_path: Path) -> None:
    """Body, headers and order of the requests are those of the archive; the results tell of each, with true times."""
    before_ns = CLOCK.unix_ns()
    with Service() as service:
        assert sent(service.url + "v1?a=1", "--results", tmp_path / "r.parquet", "--connections", "1") == 0
    assert [seen.target for seen in service.seen] == ["/v1?a=1"] * len(traces)
    assert {seen.method for seen in service.seen} == {"POST"}
    for seen, (trace, rows) in zip(service.seen, traces.items(), strict=True):
        said = json.loads(seen.body)
        assert said.pop("name") in ({root["name"] for root in roots_of(rows)} or {""})
        assert said == {"trace_id": trace.hex(), "spans": len(rows), "duration_ns": duration_of(rows)}
        version, in_header, parent, flags = seen.headers["traceparent"].split("-")
        assert (version, in_header, flags) == ("00", trace.hex(), "01")
        assert len(parent) == 16
        assert int(parent, 16) > 0
        assert seen.headers["content-type"] == "application/json"
        assert seen.headers["host"] == f"127.0.0.1:{service.port}"
    results = pq.read_table(tmp_path / "r.parquet").to_pylist()
    assert sorted(row["trace_id"] for row in results) == sorted(traces)
    bytes_of = {seen.headers["traceparent"].split("-")[1]: len(seen.body) for seen in service.seen}
    for row in results:
        assert before_ns <= row["due_ns"] <= row["sent_ns"] <= row["first_byte_ns"] <= row["done_ns"] <= CLOCK.unix_ns()
        assert (row["status"], row["error"], row["response_bytes"]) == (200, None, 2)
        assert row["request_bytes"] == bytes_of[row["trace_id"].hex()]


def test_due_times_are_those_of_the_traces(sent: Sent, traces: Traces, tmp_path: Path) -> None:
    """At a speed of 1000, gaps capped, each request is due when its trace starts, however late the service answers."""
    with Service() as service:
        assert sent(service.url, "--results", tmp_path / "r.jsonl", "-q") == 0
    due = {bytes.fromhex(row["trace_id"]): row["due_ns"] for row in read_jsonl(tmp_path / "r.jsonl")}
    at, last, first = 0, None, None
    for trace, rows in traces.items():
        start = start_of(rows)
        at += min(start - last, 10**9) if last is not None else 0
        last, first = start, due[trace] if first is None else first
        assert due[trace] - first == -(-at // 1000)


def test_turns_have_ids_of_their_own(sent: Sent, traces: Traces) -> None:
    """Three turns with mapped ids: every trace thrice under three ids, none of them the archived; the same again."""
    runs = []
    for _ in range(2):
        with Service() as service:
            words = ["--ids", "remap", "--loop", "3", "--body", "{{ loop }} {{ trace_id }} {{ start_ns }}"]
            assert sent(service.url, *words, "--connections", "1", "-q") == 0
        runs.append([(seen.body.decode().split(), seen.headers["traceparent"][3:35]) for seen in service.seen])
    assert runs[0] == runs[1]
    ids = [said[1] for said, _ in runs[0]]
    assert len(set(ids)) == len(ids) == 3 * len(traces)
    assert not set(ids) & {trace.hex() for trace in traces}
    assert [header for _, header in runs[0]] == ids
    assert Counter(said[0] for said, _ in runs[0]) == {"0": len(traces), "1": len(traces), "2": len(traces)}
    starts = [int(said[2]) for said, _ in runs[0]]
    assert starts == sorted(starts)
    assert starts[: len(traces)] == [start_of(rows) for rows in traces.values()]


def test_it_ends_after_so_many(sent: Sent, traces: Traces, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit counts requests over all turns; a burst lets the first of them go at once."""
    most = len(traces) + 3
    words = ["--ids", "remap", "--loop", "0", "--limit-requests", str(most), "--qps", "500", "--burst", "20", "--json"]
    with Service() as service:
        assert sent(service.url, *words, "-q") == 0
    assert len(service.seen) == most
    facts = json.loads(capsys.readouterr().out)
    assert facts["outcome"]["requests"] == most
    assert facts["rate"]["asked_per_s"] == pytest.approx((most - 1) / ((most - 21) / 500))


def test_a_selection_takes_traces(sent: Sent, traces: Traces) -> None:
    """Only traces with a span of that name and length are asked for, with all of their spans."""
    least = sorted(row["duration_ns"] for rows in traces.values() for row in rows)[-20]
    wanted = {trace: rows for trace, rows in traces.items() if any(row["duration_ns"] >= least for row in rows)}
    with Service() as service:
        assert sent(service.url, "--min-duration", f"{least}ns", "--connections", "1", "-q") == 0
        assert sent(service.url, "--host", "nowhere", "-q") == 1
    assert [json.loads(seen.body)["spans"] for seen in service.seen] == [len(rows) for rows in wanted.values()]


def test_what_fails_is_counted_and_told(
    sent: Sent, traces: Traces, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Statuses by number; those expected are no failure; the manifest, its closing line and the exit code agree."""
    statuses = [200, 201, 404, 503]

    async def mixed(seen: Seen) -> bytes | None:
        return status(statuses[seen.number % 4])

    counts = Counter(str(statuses[number % 4]) for number in range(len(traces)))
    manifest = tmp_path / "m.json"
    with Service(mixed) as service:
        assert sent(service.url, "--manifest", manifest) == 3
        said = capsys.readouterr().err
        assert sent(service.url, "--expect", "200-299,404,503", "--json", "-q") == 0
    facts = json.loads(manifest.read_text())["outcome"]
    assert facts["statuses"] == counts
    assert facts["requests"] == len(traces)
    assert facts["as_expected"] == counts["200"] + counts["201"]
    assert facts["classes"] == {"2xx": counts["200"] + counts["201"], "4xx": counts["404"], "5xx": counts["503"]}
    assert f"{counts['404']} × 404, {counts['503']} × 503" in said
    shown = json.loads(capsys.readouterr().out)
    assert shown["outcome"]["as_expected"] == len(traces)
    assert shown["outcome"]["latency_from_due_ns"]["count"] == len(traces)
    assert shown["ended"] == "finished"


def test_nobody_there_fails_in_one_line(sent: Sent, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1 and one line; told to go on it counts every refusal, exit 3. The results hold all either way."""
    url = f"http://127.0.0.1:{free_port()}/"
    for words, code in (([], 1), (["--keep-going"], 3)):
        assert sent(url, *words, "--results", tmp_path / "r.jsonl", "-q") == code
        assert {row["error"] for row in read_jsonl(tmp_path / "r.jsonl")} <= {"refused", "stopped"}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "nobody is there" in lines[0]


def test_what_is_late_is_lost_or_ends_it(sent: Sent, traces: Traces, tmp_path: Path) -> None:
    """A policy that no sleep can keep: what is left out is counted as lost, exit 3; or the run fails, exit 1."""
    with Service() as service:
        assert sent(service.url, "--late", "drop=1ns", "--manifest", tmp_path / "m.json", "-q") == 3
        assert service.seen == []
        assert sent(service.url, "--late", "abort=1ns", "-q") == 1
    assert json.loads((tmp_path / "m.json").read_text())["outcome"]["lost"] == {"late": len(traces)}


def test_secrets_are_sent_and_never_shown(
    sent: Sent, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token from a file or the environment reaches the service alone; on the command line it is refused."""
    secret, manifest = tmp_path / "headers", tmp_path / "m.json"
    secret.write_text("Authorization: Bearer hunter2\nX-Plain: yes\n")
    with Service() as service:
        assert sent(service.url, "--header", f"@{secret}", "--manifest", manifest, "--json") == 0
        assert sent(service.url, "--header", "Authorization: Bearer hunter2") == 2
        assert sent(service.url + "?key=hunter2", "--header", "traceparent: 00-mine", "--json") == 0
        monkeypatch.setenv("SPANLITE_REPLAY_HEADER", "Authorization: Bearer hunter3")
        assert sent(service.url, "-q") == 0
    tokens = Counter(seen.headers.get("authorization") for seen in service.seen)
    third = len(service.seen) // 3
    assert tokens == {"Bearer hunter2": third, None: third, "Bearer hunter3": third}
    assert [seen.headers["traceparent"] for seen in service.seen].count("00-mine") == third
    told = capsys.readouterr()
    assert "hunter" not in told.out + told.err + manifest.read_text()
    assert json.loads(manifest.read_text())["to"]["headers"] == [
        "Authorization",
        "Content-Type",
        "User-Agent",
        "X-Plain",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--checkpoint", "x"], "cannot be taken back"),
        (["--checkpoint", "x", "--resume"], "cannot be taken back"),
        (["--topic", "x"], "--to kafka"),
        (["-o", "x"], "--results"),
        (["--speed", "max"], "--speed 1"),
        (["--connections", "0"], "--connections"),
        (["--timeout", "soon"], "no duration"),
        (["--expect", "ok"], "--expect"),
        (["--method", "get it"], "--method"),
        (["--results", "r.csv"], ".parquet"),
        (["--header", "a b: c"], "number 1"),
        (["--header", "A: c", "--header", "a: d"], "twice"),
        (["--header", "Content-Length: 3"], "Content-Length"),
        (["--ca", "/nowhere"], "--ca"),
        (["--loop", "2"], "--ids remap"),
        (["--loop", "2", "--ids", "remap", "--period", "1ms"], "a turn is"),
        (["--limit-spans", "2"], "--limit-requests"),
    ],
)
def test_a_wrong_call_is_refused(
    sent: Sent, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flags that make no sense here end with 2 and one line that says what to do; old results stay."""
    old = tmp_path / "r.jsonl"
    old.write_text("old")
    kept = [] if "--results" in words else ["--results", str(old)]
    assert sent(f"http://127.0.0.1:{free_port()}/", *words, *kept) == 2
    assert old.read_text() == "old"
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_a_dry_run_says_what_would_be_sent(sent: Sent, traces: Traces, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests, length and the busiest second, by the schedule; nothing is sent."""
    with Service() as service:
        assert sent(service.url, "--qps", "7", "--dry-run", "--json") == 0
        assert sent(service.url, "--qps", "7", "--dry-run") == 0
    assert service.seen == []
    out = capsys.readouterr().out
    facts, _ = json.JSONDecoder().raw_decode(out)
    assert facts["requests"] == facts["traces"] == len(traces)
    assert facts["peak_per_s"] == 7
    assert facts["duration_s"] == pytest.approx((len(traces) - 1) / 7, abs=1e-8)
    assert f"{len(traces)} of {len(traces)} traces" in out


def test_a_signal_stops_it_and_writes_what_there_is(archive: Path, tmp_path: Path) -> None:
    """SIGTERM: no more is sent, what is open is answered, results and manifest are whole; 130."""
    gate, results, manifest = asyncio.Event(), tmp_path / "r.parquet", tmp_path / "m.json"

    async def held(_seen: Seen) -> bytes | None:
        await gate.wait()
        return OK

    with Service(held) as service:
        command = [sys.executable, "-m", "spanlite", "replay", "run", str(archive), "--to", "http"]
        command += ["--url", service.url, "--qps", "20", "--connections", "3", "--timeout", "20s"]
        command += ["--results", str(results), "--manifest", str(manifest)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            deadline_ns = CLOCK.monotonic_ns() + 60 * 10**9
            while len(service.seen) < 3 and process.poll() is None and CLOCK.monotonic_ns() < deadline_ns:
                CLOCK.sleep_s(0.02)
            process.send_signal(signal.SIGTERM)
            CLOCK.sleep_s(0.3)
            assert process.poll() is None  # it waits for what is open
            service.call(gate.set)
            _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "stopped after" in said
    rows = pq.read_table(results).to_pylist()
    ended = Counter(row["error"] or row["status"] for row in rows)
    assert ended[200] == 3
    assert set(ended) <= {200, "stopped"}
    facts = json.loads(manifest.read_text())
    assert facts["ended"] == "stopped"
    assert facts["outcome"]["requests"] == len(rows)
    assert len(service.seen) == 3
