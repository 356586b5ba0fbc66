"""The flags of `spanlite replay run --to http`, and what they make."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spanlite.contract.errors import UsageError
from spanlite.runtime.durations import parse_duration_ns

if TYPE_CHECKING:
    from spanlite.replay.http.calling import Calling
    from spanlite.replay.http.requests import Template

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHOD = re.compile(r"[A-Z]{1,32}")
_SECRET = ("authorization", "cookie", "proxy-authorization")
_OURS = ("content-length", "transfer-encoding", "connection")
_BODILESS = ("GET", "HEAD", "OPTIONS", "DELETE")
_OWN = ("url", "body", "header", "ca", "results", "keep_going", "limit_requests")
"""Flags that mean nothing elsewhere and have no default."""
_FOREIGN = {
    "checkpoint": ("--checkpoint", "requests cannot be taken back, so a run cannot be gone on with"),
    "resume": ("--resume", "requests cannot be taken back, so a run cannot be gone on with"),
    "limit_batches": ("--limit-batches", "take --limit-requests"),
    "limit_spans": ("--limit-spans", "take --limit-requests"),
    "output": ("-o", "what comes of the requests goes to --results FILE"),
    "topic": ("--topic", "that belongs to --to kafka"),
    "yes_live": ("--yes-live", "that belongs to --to kafka"),
    "create_topic": ("--create-topic", "that belongs to --to kafka"),
}


def add_http_arguments(group: argparse._ArgumentGroup) -> None:
    """Adds all of them."""
    group.add_argument("--url", metavar="URL", help="where requests go, one a trace; a template too")
    group.add_argument("--method", default="POST", help="(default %(default)s)")
    group.add_argument("--body", metavar="TEMPLATE", help="Jinja, or @FILE (default: a JSON object of the trace)")
    group.add_argument("--header", action="append", metavar="'NAME: VALUE'", help="or @FILE of such lines, for secrets")
    group.add_argument("--expect", default="200-299", metavar="STATUSES", help="such as 200-299,404 (default 200-299)")
    group.add_argument("--limit-requests", type=int, default=0, metavar="N", help="end after so many, over all turns")
    group.add_argument("--connections", type=int, default=256, metavar="N", help="open at once (default %(default)s)")
    group.add_argument(
        "--queue", type=int, default=100_000, metavar="N", help="waiting for one; more are lost (default %(default)s)"
    )
    group.add_argument("--timeout", default="30s", metavar="TIME", help="of a request on its way (default %(default)s)")
    group.add_argument("--ca", type=Path, metavar="FILE", help="certificates to trust, PEM (default: the system's)")
    group.add_argument("--results", type=Path, metavar="FILE", help="one row a request: ….parquet or ….jsonl")
    group.add_argument("--keep-going", action="store_true", help="even if nobody is there")


def check_http(args: argparse.Namespace) -> None:
    """Raises UsageError for flags of other places with `--to http`, and for its flags with others."""
    if args.to != "http":
        given = [name for name in _OWN if getattr(args, name)]
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} belongs to --to http")
        return
    for name, (flag, why) in _FOREIGN.items():
        if getattr(args, name):
            raise UsageError(f"{flag} does not go with --to http: {why}")
    if not args.url:
        raise UsageError("--to http sends to a service: name it with --url http://host:port/path")


def template_of(args: argparse.Namespace, headers: Mapping[str, str]) -> Template:
    """What each request says.

    Raises:
        UsageError: a template is none, or names what there is not; the method is none.
    """
    from spanlite.replay.http.bodies import DEFAULT_BODY, TextTemplate
    from spanlite.replay.http.requests import Template

    if not _METHOD.fullmatch(args.method) or args.method == "CONNECT":
        raise UsageError(f"--method {args.method!r}: write GET, POST or another in capitals")
    body = _from_file("--body", args.body) if args.body is not None else None
    if body is None and args.method not in _BODILESS:
        body = DEFAULT_BODY
    url = TextTemplate("--url", args.url)
    return Template(url, TextTemplate("--body", body) if body is not None else None, args.method, headers)


def calling_of(args: argparse.Namespace) -> Calling:
    """How the service is called.

    Raises:
        UsageError: a flag is off.
    """
    from spanlite.replay.http.calling import Calling

    for flag, value, least in (
        ("--connections", args.connections, 1),
        ("--queue", args.queue, 0),
        ("--limit-requests", args.limit_requests, 0),
    ):
        if value < least:
            raise UsageError(f"{flag} must be {least} or more, not {value}")
    return Calling(
        connections=args.connections,
        queue=args.queue,
        timeout_s=parse_duration_ns(args.timeout) / 1e9,
        ca=args.ca,
        bodiless=args.method == "HEAD",
        keep_going=args.keep_going,
    )


def headers_of(args: argparse.Namespace, *, agent: str) -> dict[str, str]:
    """The headers of all requests; messages never repeat a value.

    Args:
        args: of the command line, or as one text with a header a line of the environment.
        agent: who sends, unless a header says otherwise.

    Raises:
        UsageError: one is none, is there twice, or a secret stands on the command line.
    """
    given = args.header.splitlines() if isinstance(args.header, str) else args.header or []
    headers: dict[str, str] = {}
    for number, text in enumerate(given):
        shown = not isinstance(args.header, str) and not text.startswith("@")
        where = f"--header number {number + 1}"
        for name, value in _headers(where, _from_file("--header", text).splitlines() if text[:1] == "@" else [text]):
            if shown and name.lower() in _SECRET:
                raise UsageError(
                    f"{where}: {name} would be seen by all in the list of processes; write it to a file "
                    "and take --header @FILE, or the environment"
                )
            if name.lower() in _OURS:
                raise UsageError(f"{where}: {name} follows from the rest; leave it out")
            if name.lower() in {other.lower() for other in headers}:
                raise UsageError(f"{where}: {name} is there twice")
            headers[name] = value
    named = {name.lower() for name in headers}
    if "content-type" not in named and (args.body is not None or args.method not in _BODILESS):
        headers["Content-Type"] = "application/json"
    return headers if "user-agent" in named else {**headers, "User-Agent": agent}


def expected_of(text: str) -> frozenset[int]:
    """The statuses of `200-299,404`.

    Raises:
        UsageError: another form.
    """
    expected: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([1-9]\d\d)(?:-([1-9]\d\d))?", part.strip())
        if match is None:
            raise UsageError(f"--expect {text!r}: write statuses such as 200-299,404")
        expected.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(expected)


def _headers(where: str, lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name) or any(ord(c) < 32 and c != "\t" for c in value) or "\x7f" in value:
            raise UsageError(f"{where}: write it as 'Name: value', without line ends or other control characters")
        yield name, value.strip()


def _from_file(flag: str, text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"{flag} {text}: {said}; name a file that can be read") from error
