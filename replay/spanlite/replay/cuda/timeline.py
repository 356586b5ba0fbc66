"""The kernels of one GPU in the order of their starts: columns, over tables of what repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64, Kind, Table
from spanlite.contract.errors import ReplayError
from spanlite.replay.plan import Found, matched_traces, read_group, scan
from spanlite.replay.ports import Archive
from spanlite.replay.runs import text_codes
from spanlite.replay.selection import Selection, among
from spanlite.replay.tables import Entries, Texts

KERNEL = np.dtype(
    [
        ("name", "<i4"),  # index into Timeline.names
        ("registers_per_thread", "<u4"),
        ("static_shared_memory", "<u4"),
        ("dynamic_shared_memory", "<u4"),
        *((f"{what}_{axis}", "<u4") for what in ("grid", "block") for axis in "xyz"),
        ("active_warps", "<u4"),
    ]
)
"""A launch configuration as it was recorded; units as in contract.columns.CONFIG."""
QUEUE = np.dtype([("session", "<u8"), ("context_id", "<u4"), ("stream_id", "<u4"), ("priority", "<i4")])
"""A stream of a traced process."""
CHUNK = 1 << 16
_COLUMNS = ["start_ns", "duration_ns", "kind", "name", "gpu_uuid", *(KERNEL.names or ())[1:], *(QUEUE.names or ())]


@dataclass(frozen=True, slots=True)
class Rows:
    """n kernels, by their starts.

    Attributes:
        start_ns, duration_ns: int64, as recorded.
        queue: index into Timeline.queues.
        kernel: index into Timeline.kernels.
    """

    start_ns: Int64
    duration_ns: Int64
    queue: Int32
    kernel: Int32

    def __len__(self) -> int:
        return len(self.start_ns)

    def __getitem__(self, rows: Any) -> Rows:
        return Rows(self.start_ns[rows], self.duration_ns[rows], self.queue[rows], self.kernel[rows])


class Timeline:
    """The kernels that a selection takes of one GPU.

    Attributes:
        names: full names of kernels.
        kernels: dtype KERNEL, what was launched.
        counts: how many of each, shape (k,).
        queues: dtype QUEUE.
        gpu: UUID.
        first_ns, last_ns: first start and last end, Unix nanoseconds.
        busy_ns: sum of durations.
        left_out: other work of the GPU that was selected, by kind: it is not re-enacted.
    """

    def __init__(self, archive: Archive, selection: Selection) -> None:
        """Reads what is launched, and where.

        Raises:
            ArchiveError: a file cannot be read.
            ReplayError: no kernel is selected, or those of several GPUs.
        """
        self._archive, self._selection = archive, selection
        self._traces = matched_traces(archive, selection)
        self._texts, self._kernels, self._queues = Texts(), Entries(KERNEL), Entries(QUEUE)
        self._groups: list[tuple[int, int, int]] = []
        self.left_out: Counter[str] = Counter()
        self.first_ns, self.last_ns, self.busy_ns = 2**63 - 1, -(2**63), 0
        counts: Int64 = np.zeros(0, np.int64)
        gpus: set[str] = set()
        for found in scan(archive, selection, self._columns, prune=self._traces is None):
            rows, codes, texts = self._kernel_rows(found)
            if not len(rows):
                continue
            gpus.update(texts[code] if code >= 0 else "" for code in np.unique(codes).tolist())
            self._groups.append((int(rows.start_ns.min()), found.file, found.group))
            self.first_ns = min(self.first_ns, int(rows.start_ns.min()))
            self.last_ns = max(self.last_ns, int((rows.start_ns + rows.duration_ns).max()))
            self.busy_ns += int(rows.duration_ns.sum())
            more = np.bincount(rows.kernel, minlength=len(self.kernels))
            more[: len(counts)] += counts
            counts = more
        if not self._groups:
            raise ReplayError(
                f"{archive.where}: no kernel is selected; widen the selection, or see `spanlite archive ls`"
            )
        if len(gpus) > 1:
            raise ReplayError(
                f"{archive.where}: kernels of {len(gpus)} GPUs are selected; take one with --gpu UUID, and one command "
                f"for each: {', '.join(sorted(gpus))}"
            )
        self._groups.sort()
        self.counts: Int64 = counts
        self.gpu = gpus.pop()

    def __len__(self) -> int:
        return int(self.counts.sum())

    @property
    def names(self) -> list[str]:
        return self._texts.values

    @property
    def kernels(self) -> Table:
        return self._kernels.table

    @property
    def queues(self) -> Table:
        return self._queues.table

    def rows(self) -> Iterator[Rows]:
        """All kernels by start; those that start at once in the order of the archive. Row groups overlap in time, so
        rows wait until no row group that is not read can have an earlier one.

        Raises:
            ArchiveError: a file is damaged or gone.
        """
        held: Rows | None = None
        for at, (_, file, group) in enumerate(self._groups):
            read = self._read(file, group)
            held = read if held is None else _joined(held, read)
            held = held[np.argsort(held.start_ns, kind="stable")]
            bound = self._groups[at + 1][0] if at + 1 < len(self._groups) else None
            ready = len(held) if bound is None else int(np.searchsorted(held.start_ns, bound))
            yield from (held[begin : min(begin + CHUNK, ready)] for begin in range(0, ready, CHUNK))
            held = held[ready:]

    @property
    def _columns(self) -> list[str]:
        return _COLUMNS if self._traces is None else [*_COLUMNS, "trace_id"]

    def _read(self, file: int, group: int) -> Rows:
        source = self._archive.sources[file]
        columns = list(dict.fromkeys([*self._columns, *self._selection.columns]))
        with self._archive.open(source) as opened:
            table = read_group(self._archive, source, opened, group, columns)
        return self._kernel_rows(Found(file, group, table, self._selection.mask(table)), count=False)[0]

    def _kernel_rows(self, found: Found, *, count: bool = True) -> tuple[Rows, Int32, list[str]]:
        """Kernels of a row group that are taken, the code of the GPU of each, and the codes' texts."""
        table, taken = found.table, found.taken
        if self._traces:
            taken = taken | among(table["trace_id"], self._traces)
        codes, kinds = text_codes(table["kind"])
        named = np.array([*kinds, ""], dtype=np.str_)[codes]
        is_kernel = named == Kind.KERNEL.name.lower()
        if count:
            for kind in (Kind.MEMCPY.name.lower(), Kind.MEMSET.name.lower()):
                self.left_out[kind] += int((taken & (named == kind)).sum())
        rows = np.flatnonzero(taken & is_kernel)
        gpu, gpus = text_codes(table["gpu_uuid"])
        names = self._texts.numbers(*text_codes(table["name"]))[rows]
        configuration = {name: _numbers(table[name], rows) for name in (KERNEL.names or ())[1:]}
        place = {name: _numbers(table[name], rows) for name in QUEUE.names or ()}
        kernels = Rows(
            table["start_ns"].to_numpy()[rows],
            table["duration_ns"].to_numpy()[rows],
            self._queues.numbers(place, len(rows)),
            self._kernels.numbers({"name": names, **configuration}, len(rows)),
        )
        return kernels, gpu[rows], gpus


def _numbers(column: Any, rows: Int64) -> NDArray[Any]:
    filled = column.fill_null(0) if column.null_count else column
    return np.asarray(filled.to_numpy()[rows])


def _joined(left: Rows, right: Rows) -> Rows:
    return Rows(
        *(
            np.concatenate([getattr(left, name), getattr(right, name)])
            for name in ("start_ns", "duration_ns", "queue", "kernel")
        )
    )
