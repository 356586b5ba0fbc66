"""What is sent: one request a trace, made ahead of its time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.http.bodies import TextTemplate, names_of
from spanlite.replay.http.traces import ASKED, Traces
from spanlite.replay.identity import Keys
from spanlite.replay.pacing.schedule import Chunk, Due
from spanlite.replay.prepare import Settings

_CHUNK = 64
MADE = 16
"""Requests that are made at a time: few, for whoever makes them keeps others of the process waiting."""
_SAFE = "/%:@!$&'()*+,;=~?-._"


class Origin(NamedTuple):
    """Where connections go."""

    secure: bool
    host: str
    port: int


@dataclass(slots=True)
class Request:
    """One request.

    Attributes:
        trace: id that it goes out with, 16 bytes.
        due_ns: since the start of the replay.
        origin: where to.
        payload: what is written, head and body.
        body_bytes: of the body alone.
    """

    trace: bytes
    due_ns: int
    origin: Origin
    payload: bytes
    body_bytes: int


@dataclass(frozen=True)
class Template:
    """What requests are made from.

    Attributes:
        url, body: as given.
        method: of all.
        headers: of all; the length of the body, and what is not among them of Host and traceparent, is added.
    """

    url: TextTemplate
    body: TextTemplate | None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> frozenset[str]:
        """What of the traces has to be read beside what always is."""
        return names_of((self.url, self.body)) & ASKED.keys()


class Maker:
    """Makes requests of traces.

    Attributes:
        traces: of one turn.
        period_ns: by how much more times are moved in each further turn.
    """

    def __init__(self, traces: Traces, settings: Settings, template: Template, *, run: str, offset_ns: int) -> None:
        """Renders the first request to see whether it can be.

        Raises:
            UsageError: it cannot.
        """
        self.traces = traces
        self._template = template
        self._settings = settings
        self._run = run
        self._offset_ns = offset_ns
        length = int(traces.start_ns[-1] - traces.start_ns[0])
        self.period_ns = settings.period_ns or length + max(length // max(len(traces) - 1, 1), 1)
        self._keys: tuple[int, bytes] = (-1, b"")
        self._names = names_of((template.url, template.body))
        facts = self.facts(0, due_ns=0)
        if template.body is not None:
            template.body.check(facts)
        template.url.check(facts)
        try:
            place = parse_url(template.url.render(facts))
        except ReplayError as error:
            raise UsageError(str(error)) from error
        self._place = place if template.url.constant is not None else None
        named = {name.lower() for name in template.headers}
        self._host, self._traceparent = "host" not in named, "traceparent" not in named
        self._lines = [f"{name}: {value}" for name, value in template.headers.items()]

    def chunks(self, turn: int, weights: Int64 | None = None) -> Iterator[Chunk[int]]:
        """The numbers of the requests of one turn, and the times that decide when they are due."""
        count = len(self.traces)
        for begin in range(0, count, _CHUNK):
            end = min(begin + _CHUNK, count)
            numbers = range(turn * count + begin, turn * count + end)
            yield Chunk(self.traces.start_ns[begin:end], numbers, None if weights is None else weights[begin:end])

    def made(self, chunks: Iterable[Due[int]]) -> Iterator[Due[Request]]:
        """The requests of the numbers.

        Raises:
            ReplayError: a template cannot be rendered for a trace.
        """
        for chunk in chunks:
            for begin in range(0, len(chunk.items), MADE):
                due_ns = chunk.due_ns[begin : begin + MADE]
                yield Due(due_ns, self._requests(chunk.items[begin : begin + MADE], due_ns.tolist()))

    def facts(self, number: int, *, due_ns: int) -> dict[str, Any]:
        """The variables that the templates use, and those that name the request."""
        traces, asked = self.traces, self._names
        turn, at = divmod(number, len(traces))
        texts = traces.texts
        facts: dict[str, Any] = {
            "trace_id": self._mapped(turn, at).hex(),
            "name": texts[traces.name[at]],
            "start_ns": int(traces.start_ns[at]) + self._offset_ns + turn * self.period_ns,
            "duration_ns": int(traces.duration_ns[at]),
            "spans": int(traces.spans[at]),
            "index": number,
            "loop": turn,
            "due_ns": due_ns,
        }
        if "host" in asked:
            facts["host"] = texts[traces.host[at]]
        if "resource" in asked:
            facts["resource"] = traces.resources[traces.resource[at]]
        if traces.kernels is not None:
            facts["kernels"] = traces.kernels.count(at)
        if (gpus := traces.gpus) is not None:
            facts["gpus"] = sorted(texts[gpus.value[place]] for place in gpus.place(at))
        if (stages := traces.stages) is not None:
            named = [
                {
                    "name": texts[stages.value[place]],
                    "spans": int(stages.spans[place]),
                    "duration_ns": int(stages.duration_ns[place]),
                }
                for place in stages.place(at)
            ]
            facts["stages"] = sorted(named, key=lambda stage: str(stage["name"]))
        return facts

    def _requests(self, numbers: Sequence[int], due_ns: Sequence[int]) -> list[Request]:
        return [self._request(number, due) for number, due in zip(numbers, due_ns, strict=True)]

    def _request(self, number: int, due_ns: int) -> Request:
        facts = self.facts(number, due_ns=due_ns)
        template = self._template
        body = template.body.render(facts).encode() if template.body is not None else b""
        place = self._place if self._place is not None else parse_url(template.url.render(facts))
        trace: str = facts["trace_id"]
        lines = [f"{template.method} {place.target} HTTP/1.1", *self._lines]
        if self._host:
            lines.append(f"Host: {place.authority}")
        if self._traceparent:
            lines.append(f"traceparent: 00-{trace}-{_parent(trace)}-01")
        if template.body is not None:
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join([*lines, "", ""]).encode()
        return Request(bytes.fromhex(trace), due_ns, place.origin, head + body, len(body))

    def _mapped(self, turn: int, at: int) -> bytes:
        trace: bytes = self.traces.ids[at].tobytes()
        if self._settings.ids == "keep":
            return trace
        if self._keys[0] != turn:
            self._keys = (turn, Keys.of(self._run, self._settings.seed, turn).trace)
        return (int.from_bytes(trace, "little") ^ int.from_bytes(self._keys[1], "little")).to_bytes(16, "little")


class Place(NamedTuple):
    """An address, taken apart: where connections go, what the request asks for, what its Host header says."""

    origin: Origin
    target: str
    authority: str


def parse_url(url: str) -> Place:
    """The address of a service.

    Raises:
        ReplayError: it is none, or holds a password; the message does not repeat what may be one.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        ascii_host = host if ":" in host else host.encode("idna").decode()
    except ValueError:  # a UnicodeError is one
        parts, host, ascii_host, port = urlsplit(""), "", "", None
    if parts.username is not None or parts.password is not None:
        raise ReplayError("--url: a user or password in it would show; send them with --header @FILE")
    strange = any(character.isspace() or not character.isprintable() for character in url)
    if parts.scheme not in ("http", "https") or not host or port == 0 or strange:
        said = url.partition("?")[0] if "@" not in url else "with an @"
        raise ReplayError(f"--url {said!r} is no address; write http://host:port/path or https://…")
    secure = parts.scheme == "https"
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    shown = f"[{ascii_host}]" if ":" in ascii_host else ascii_host
    origin = Origin(secure, ascii_host, port or (443 if secure else 80))
    return Place(origin, target, f"{shown}:{port}" if port else shown)


def peak_per_s(due_ns: Iterable[Int64]) -> int:
    """Most requests in one second, of those counted from the start; due times ascending."""
    most, second, held = 0, -1, 0
    for chunk in due_ns:
        seconds, counts = np.unique(chunk // 10**9, return_counts=True)
        for at, count in zip(seconds.tolist(), counts.tolist(), strict=True):
            held = held + count if at == second else count
            second, most = at, max(most, held)
    return most


def _parent(trace: str) -> str:
    """A span id for the header: the second half of the trace's, which no header may show as zeros."""
    return trace[16:] if trace[16:].strip("0") else "0000000000000001"
