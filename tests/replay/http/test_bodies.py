"""Templates: what they may name, what the sandbox keeps from them, and that nothing is sent if they are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.http.bodies import VARIABLES, TextTemplate
from spanlite.replay.http.requests import parse_url
from tests.replay.http.conftest import Row, duration_of, start_of
from tests.replay.http.service import Service

FACTS = {"trace_id": "ab", "index": 3, "name": "x", "spans": 2, "stages": [{"name": "decode", "spans": 1}]}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ user }}", f"user; there are {VARIABLES[0]}"),
        ("{{ spans }} {{ a }} {% for b in c %}{{ b }}{% endfor %}", "a, c;"),
        ("{{ spans", "line 1"),
        ("\n{% nothing %}", "line 2"),
        ("{{ spans|nofilter }}", "nofilter"),
        ("{{ lipsum() }}", "lipsum"),
        ("{% include 'x' %}", "no loader"),
        ("{{ name.__class__.__mro__ }}", "__class__"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", "__class__"),
        ("{{ stages.append(1) }}", "append"),
        ("{{ range(10 ** 9)|length }}", "Range too big"),
        ("{{ stages[7].name }}", "no element 7"),
        ("{{ 1 // 0 }}", "zero"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ("{{ 'x' * 17000000 }}", "17000000 characters"),
    ],
)
def test_what_a_template_may_not_do_is_a_wrong_call(source: str, said: str) -> None:
    """Names that there are not, bad syntax, and ways out of the sandbox are told before anything is sent."""
    with pytest.raises(UsageError, match="--body") as caught:
        TextTemplate("--body", source).check(FACTS)
    assert said in str(caught.value)


def test_a_trace_that_a_template_does_not_fit_is_named() -> None:
    """What only shows when a request is made names the request."""
    with pytest.raises(ReplayError, match=r"request 3, trace ab: .*no element 7"):
        TextTemplate("--body", "{{ stages[7].name }}").render(FACTS)


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://x/", "http://", "http://h:0/", "http://h:99999/", "http://h/a b", "http://h/\n", "http://[::1/"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    """Only http and https, with a host and no white space."""
    with pytest.raises(ReplayError, match="no address"):
        parse_url(url)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    """It would show in the manifest and in messages."""
    with pytest.raises(ReplayError, match="--header @FILE") as caught:
        parse_url("http://me:hunter2@host/")
    assert "hunter2" not in str(caught.value)


def test_an_address_is_taken_apart() -> None:
    """Port, path, query and host as they go on the wire."""
    assert parse_url("https://h/ä?q=a b".replace(" ", "%20")) == (((True, "h", 443)), "/%C3%A4?q=a%20b", "h")
    assert parse_url("http://[::1]:8080") == ((False, "::1", 8080), "/", "[::1]:8080")


def test_all_variables_say_what_the_archive_says(
    sent: Callable[..., int], traces: dict[bytes, list[Row]], tmp_path: Path
) -> None:
    """Each variable in a body, and one in the address, of every trace; from a file, whose last line end stays."""
    body = tmp_path / "body.j2"
    body.write_text("{" + ", ".join(f'"{name}": {{{{ {name}|tojson }}}}' for name in VARIABLES) + "}\n")
    with Service() as service:
        url = service.url + "v1/{{ name|urlencode }}?n={{ index }}"
        assert sent(url, "--body", f"@{body}", "-q", "--connections", "1") == 0
    assert len(service.seen) == len(traces)
    first = min(start_of(rows) for rows in traces.values())
    for seen, (trace, rows) in zip(service.seen, traces.items(), strict=True):
        said = json.loads(seen.body)
        assert seen.body.endswith(b"}\n")
        assert said["trace_id"] == trace.hex()
        assert said["start_ns"] == start_of(rows)
        assert said["duration_ns"] == duration_of(rows)
        assert said["spans"] == len(rows)
        assert said["kernels"] == len({row["kernel"] for row in rows if row["kind"] == "kernel"})
        assert said["gpus"] == sorted({row["gpu_uuid"] for row in rows if row["gpu_uuid"]})
        work = [row for row in rows if row["kind"] != "range" and row["stage"]]
        assert said["stages"] == [
            {
                "name": stage,
                "spans": sum(row["stage"] == stage for row in work),
                "duration_ns": sum(row["duration_ns"] for row in work if row["stage"] == stage),
            }
            for stage in sorted({row["stage"] for row in work})
        ]
        assert said["host"] == said["resource"]["host.name"]
        assert (said["index"], said["loop"]) == (seen.number, 0)
        assert 0 <= said["due_ns"] <= (start_of(rows) - first) / 1000 + 1
        assert seen.target.endswith(f"?n={seen.number}")
        assert seen.target.startswith("/v1/")


@pytest.mark.parametrize("words", [["--body", "{{ nope }}"], ["--body", "@/nowhere"], ["--header", "a"]])
def test_nothing_is_sent_if_the_call_is_wrong(sent: Callable[..., int], words: list[str]) -> None:
    """The service is not even connected to."""
    with Service() as service:
        assert sent(service.url, *words) == 2
    assert service.seen == []


def test_a_template_that_fails_on_the_way_ends_it(sent: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """The request that cannot be made is named in one line, exit 1, and none after it is sent."""
    with Service() as service:
        assert sent(service.url, "--body", "{{ [7, 8, 9][index] }}", "-q") == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "--body: request 3, trace" in lines[0]
    assert len(service.seen) <= 3
