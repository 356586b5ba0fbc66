"""The order of rows within a partition, read back from files: groups of rows by trace, or by session without one."""

from __future__ import annotations

from typing import Any

import numpy as np

from spanlite.contract.columns import Int64
from spanlite.pipeline.archive.decode import joint_codes, numbers, text_codes
from spanlite.pipeline.archive.order import group_keys, group_ranks

KEY_COLUMNS = ["trace_id", "trace_start_ns", "session", "start_ns"]
_LATEST = np.iinfo(np.int64).max


class Groups:
    """Groups met so far, and the first start of each: what the agent said, else the first among the rows."""

    def __init__(self) -> None:
        self._codes: dict[bytes | int, int] = {}
        self._seen = np.zeros(0, dtype=np.int64)
        self._told = np.zeros(0, dtype=np.int64)

    def add(self, table: Any) -> Int64:
        """Takes the KEY_COLUMNS of a table; returns the group of each row."""
        group = self.codes(table)
        missing = len(self._codes) - len(self._seen)
        self._seen = np.append(self._seen, np.full(missing, _LATEST))
        self._told = np.append(self._told, np.full(missing, _LATEST))
        np.minimum.at(self._seen, group, numbers(table["start_ns"]))
        told = numbers(table["trace_start_ns"])
        np.minimum.at(self._told, group[told != 0], told[told != 0])
        return group

    def codes(self, table: Any) -> Int64:
        """The group of each row."""
        trace, ids = text_codes(table["trace_id"])
        session = np.where(trace >= 0, np.uint64(0), numbers(table["session"]))
        local, first = joint_codes((trace, session), len(trace))
        keys: list[bytes | int] = [ids[trace[at]] if trace[at] >= 0 else int(session[at]) for at in first]
        mapped = np.array([self._codes.setdefault(key, len(self._codes)) for key in keys], dtype=np.int64)
        return mapped[local] if len(mapped) else local

    def ranks(self) -> Int64:
        """Position of each group in the order of the files: first start, traces by id before sessions."""
        first = np.where(self._told != _LATEST, self._told, self._seen)
        traces = [(code, key) for key, code in self._codes.items() if isinstance(key, bytes)]
        sessions = [(code, key) for key, code in self._codes.items() if isinstance(key, int)]
        ids = np.array([key for _, key in traces], dtype="V16")
        keys = group_keys(ids, np.array([key for _, key in sessions], dtype=np.uint64))
        order = np.array([code for code, _ in (*traces, *sessions)], dtype=np.int64)
        ranks = np.empty(len(first), dtype=np.int64)
        ranks[order] = group_ranks(first[order], keys)
        return ranks
