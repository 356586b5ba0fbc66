"""Ids and starts of the traces of one traced process: told once, told alike from then on."""

from __future__ import annotations

import numpy as np

from spanlite.agent.tracetable import Traces
from spanlite.contract.columns import TRACE, Int32, Int64, Table
from spanlite.contract.ids import derived_trace_id

_MOST = 1 << 16
"""Traces that are remembered, at least."""


class TraceIds:
    """Ids by the key of a trace, derived where no context gives one."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._told: dict[int | bytes, tuple[bytes, int]] = {}

    def table(self, traces: Traces, *used: Int64 | Int32) -> Table:
        """A table of dtype TRACE with a row for each trace; those that no row points at are left empty.

        Args:
            traces: as attribution found them.
            used: rows of `traces`, -1 = none.
        """
        table = np.zeros(len(traces), dtype=TRACE)
        needed = np.zeros(len(traces) + 1, dtype=bool)
        for index in used:
            needed[index] = True  # -1 marks the place after the end
        for row in np.flatnonzero(needed[:-1]).tolist():
            given, key = traces.given_id(row), traces.key(row)
            if (given or key) not in self._told:
                name = given or derived_trace_id(self._session, key)
                self._told[given or key] = name, int(traces.start_ns[row])
            name, start_ns = self._told[given or key]
            table[row] = name, traces.remote_parent(row), start_ns
        if len(self._told) > 2 * _MOST:
            self._told = dict(list(self._told.items())[_MOST:])
        return table
