"""One entry a trace: when it began, how long it took, what is in it; from few columns, row group by row group.

What is found is held as columns, 76 bytes for each trace and row group that holds spans of it, and 8 more for each
distinct kernel or GPU of a trace, 24 for each stage, where those are asked for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64
from spanlite.contract.errors import ReplayError
from spanlite.replay.http.members import Found as FoundMembers
from spanlite.replay.http.members import Members
from spanlite.replay.plan import scan
from spanlite.replay.ports import Archive
from spanlite.replay.runs import change_points, id_codes, one_array, text_codes
from spanlite.replay.selection import Mask, Selection, among
from spanlite.replay.tables import Texts

ALWAYS = ("trace_id", "trace_start_ns", "start_ns", "duration_ns", "kind", "name", "parent_span_id")
ASKED = {"kernels": "kernel", "gpus": "gpu_uuid", "stages": "stage", "host": "host", "resource": "batch_info"}
"""What is read only if it is asked for, and the column that says it."""
_MOST = 2**63 - 1
_Number = TypeVar("_Number", np.int64, np.int32)
_KNOWN, _FIRST, _LAST, _HEAD, _LENGTH = range(5)
_SPANS, _CLASS, _NAME, _HOST, _RESOURCE = range(5)


@dataclass(frozen=True, slots=True)
class Traces:
    """n traces in the order of their starts, then of their ids.

    Attributes:
        ids: 16 bytes each.
        start_ns: of the trace as the archive says it, else of its first span; Unix nanoseconds.
        duration_ns: from then to the end of its last span.
        spans: all of the trace, ranges too.
        name: index into `texts`: of the root, the first range that has no parent; "" for a trace without one.
        host: likewise, of the root, or else the first span; "" unless asked for.
        resource: index into `resources`, likewise.
        kernels, gpus, stages: numbers of texts; None unless asked for.
    """

    ids: NDArray[np.void]
    start_ns: Int64
    duration_ns: Int64
    spans: Int64
    name: Int32
    host: Int32
    resource: Int32
    kernels: Members | None
    gpus: Members | None
    stages: Members | None
    texts: Sequence[str]
    resources: Sequence[Mapping[str, str]]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def digest(self) -> str:
        """Tells apart what would be asked of a service."""
        digest = hashlib.blake2b(self.ids.tobytes(), digest_size=16)
        for column in (self.start_ns, self.duration_ns, self.spans):
            digest.update(column.tobytes())
        return digest.hexdigest()


def read_traces(archive: Archive, selection: Selection, asked: Set[str] = frozenset()) -> Traces:
    """Every trace that has a span which is selected, with all of its spans.

    Args:
        archive: where from.
        selection: which.
        asked: names of ASKED that are wanted.

    Raises:
        ArchiveError: a file cannot be read.
        ReplayError: no trace is selected.
    """
    matched: set[bytes] | None = None
    if not selection.everything:
        matched = set()
        for found in scan(archive, selection, ["trace_id"], prune=True):
            codes, ids = id_codes(found.table["trace_id"])
            matched.update(ids[code].tobytes() for code in np.unique(codes[found.taken]) if code >= 0)
    partial = _Partial(asked)
    for found in scan(archive, selection, [*ALWAYS, *(ASKED[name] for name in sorted(asked))], prune=False):
        partial.add(found.table, None if matched is None else among(found.table["trace_id"], matched))
    if not partial.count:
        raise ReplayError(f"{archive.where}: no trace is selected; widen the selection, or see `spanlite archive ls`")
    return partial.traces()


class _Partial:
    """Traces as they are found, one entry for each and row group."""

    def __init__(self, asked: Set[str]) -> None:
        self._texts, self._resources = Texts(), Texts()
        self._ids: list[NDArray[np.void]] = []
        self._times: list[Int64] = []
        self._facts: list[Int32] = []
        self._members = {
            name: FoundMembers(summed=name == "stages") for name in ("kernels", "gpus", "stages") if name in asked
        }
        self._asked = asked
        self.count = 0

    def add(self, table: Any, taken: Mask | None) -> None:
        """Adds the rows `taken` of a row group, those without a trace left out."""
        codes, ids = id_codes(table["trace_id"])
        rows = np.flatnonzero(codes >= 0 if taken is None else taken & (codes >= 0))
        if not len(rows):
            return
        rows = rows[np.argsort(codes[rows], kind="stable")]
        begins = change_points(codes[rows])
        counts = np.diff(np.append(begins, len(rows)))
        start, length = (table[name].to_numpy()[rows] for name in ("start_ns", "duration_ns"))
        known = table["trace_start_ns"].to_numpy()[rows]
        kinds = _texts_of(table["kind"], rows)
        below = ~((kinds == "range") & np.asarray(one_array(table["parent_span_id"]).is_null())[rows])
        head = np.lexsort((-length, start, below, codes[rows]))[begins]
        times = [
            np.minimum.reduceat(np.where(known == 0, _MOST, known), begins),
            np.minimum.reduceat(start, begins),
            np.maximum.reduceat(start + length, begins),
            start[head],
            -length[head],
        ]
        none = np.zeros(len(head), np.int32)
        facts = [
            counts.astype(np.int32),
            below[head].astype(np.int32),
            np.where(below[head], none, self._texts.numbers(*text_codes(table["name"]))[rows[head]]),
            self._host(table)[rows[head]] if "host" in self._asked else none,
            self._resource(table)[rows[head]] if "resource" in self._asked else none,
        ]
        of_trace = np.repeat(np.arange(self.count, self.count + len(begins)), counts)
        work = kinds != "range"
        for name, members in self._members.items():
            value = self._texts.numbers(*text_codes(table[ASKED[name]]))[rows]
            wanted = (value > 0) & (kinds == "kernel" if name == "kernels" else work)
            members.add(of_trace[wanted], value[wanted], length[wanted])
        self._ids.append(ids[codes[rows[begins]]])
        self._times.append(np.stack(times))
        self._facts.append(np.stack(facts))
        self.count += len(begins)

    def traces(self) -> Traces:
        """What was added, each trace once."""
        ids, times, facts = np.concatenate(self._ids), _joined(self._times), _joined(self._facts)
        self._ids.clear()
        words = ids.view(">u8").reshape(-1, 2).astype(np.uint64)
        order = np.lexsort((words[:, 1], words[:, 0]))
        begins = change_points(words[order, 0], words[order, 1])
        del words
        of_trace = np.empty(len(ids), dtype=np.int64)
        of_trace[order] = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(ids))))
        head = np.lexsort((times[_LENGTH], times[_HEAD], facts[_CLASS], of_trace))[begins]
        known, first = (np.minimum.reduceat(times[at][order], begins) for at in (_KNOWN, _FIRST))
        start = np.where(known == _MOST, first, known)
        length = np.maximum(np.maximum.reduceat(times[_LAST][order], begins) - start, 0)
        arranged = np.argsort(start, kind="stable")
        rank = np.empty(len(begins), dtype=np.int64)
        rank[arranged] = np.arange(len(begins))
        head = head[arranged]
        members = {name: one.members(rank[of_trace], len(begins)) for name, one in self._members.items()}
        return Traces(
            ids=ids[head],
            start_ns=start[arranged],
            duration_ns=length[arranged],
            spans=np.add.reduceat(facts[_SPANS][order].astype(np.int64), begins)[arranged],
            name=facts[_NAME][head],
            host=facts[_HOST][head],
            resource=facts[_RESOURCE][head],
            kernels=members.get("kernels"),
            gpus=members.get("gpus"),
            stages=members.get("stages"),
            texts=self._texts.values,
            resources=[json.loads(text or "{}") for text in self._resources.values],
        )

    def _host(self, table: Any) -> Int32:
        return self._texts.numbers(*text_codes(table["host"]))

    def _resource(self, table: Any) -> Int32:
        codes, infos = text_codes(table["batch_info"])
        return self._resources.numbers(codes, [json.dumps(json.loads(i)["resource"], sort_keys=True) for i in infos])


def _joined(pieces: list[NDArray[_Number]]) -> NDArray[_Number]:
    """All columns, whose pieces are let go."""
    joined = np.concatenate(pieces, axis=1)
    pieces.clear()
    return joined


def _texts_of(column: Any, rows: Int64) -> NDArray[np.str_]:
    codes, values = text_codes(column)
    return np.array([*values, ""], dtype=np.str_)[codes[rows]]
