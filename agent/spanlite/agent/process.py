"""One traced process as the agent sees it: frames in, batches of attributed spans out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.activity import Activity, decode
from spanlite.agent.batcher import Batcher
from spanlite.agent.boundaries import Boundaries, stamped_boundaries
from spanlite.agent.columns import RangeRows, in_start_order, with_ranges
from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import STAMP, Frame, Header, unpack_clock, unpack_names, unpack_stamps, unpack_text
from spanlite.agent.frames import Clock as ClockReading
from spanlite.agent.launches import Launches, Strings, config_table, node_table, place_table
from spanlite.agent.layouts import Layout, layout_for
from spanlite.agent.ranges import NONE, UNKNOWN
from spanlite.agent.traces import stream_keys
from spanlite.agent.tracetable import Traces
from spanlite.agent.tracker import Step, Tracker
from spanlite.agent.work import launches_of, name_of
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch, ClockAnchor, Gpu
from spanlite.contract.columns import TRACE, UNKNOWN_STAGE, Int32, Int64, SpanColumns, Table, make_columns
from spanlite.contract.errors import FrameError
from spanlite.contract.ids import derived_trace_id
from spanlite.contract.names import clean_text
from spanlite.runtime.clock import Clock

_GPU_NUMBERS = ("compute_major", "compute_minor", "multiprocessors")


class TracedProcess:
    """Names, clock, ranges and numbering of one connection.

    `take` handles a frame after HELLO; `finish` gives out what was held back. A launch is held back while the record
    that decides its stage may still come.
    """

    def __init__(self, layout: Layout, batcher: Batcher, clock: Clock, counts: AgentCounts) -> None:
        self._layout = layout
        self._batcher = batcher
        self._clock = clock
        self._counts = counts
        self._names: dict[int, str] = {}
        self._tracker = Tracker()
        self._held: Launches | None = None
        self._stamps: list[Table] = []
        self._stamped = False
        self._process_now: ClockReading | None = None
        self._read_at_ns = 0
        self._next_frame = 1

    @classmethod
    def from_hello(cls, header: Header, payload: bytes, pid: int, clock: Clock, counts: AgentCounts) -> TracedProcess:
        """A process by its first frame.

        Raises:
            FrameError: the first frame is no HELLO, or lacks a value.
            LayoutError: its CUPTI version is not known, or its record sizes contradict it.
        """
        if header.type != Frame.HELLO:
            raise FrameError("hello", f"the first frame is {header.type.name}, not HELLO")
        said = unpack_text(payload)
        try:
            version = int(said["cupti_version"])
            sizes = {int(key.removeprefix("size.")): int(said[key]) for key in said if key.startswith("size.")}
            session = int(said["session"], 16)
            gpus = _gpus(said)
        except (KeyError, ValueError) as error:
            raise FrameError("hello", f"HELLO lacks a value or holds a bad one: {error}") from error
        resource = {key.removeprefix("resource."): said[key] for key in said if key.startswith("resource.")}
        resource = {
            "process.pid": str(pid),
            "cupti.version": str(version),
            "host.name": os.uname().nodename,
            **resource,
        }
        producer = session.to_bytes(8, "big") + version.to_bytes(8, "big")
        batcher = Batcher(producer, session, resource, gpus, clock)
        return cls(layout_for(version, sizes), batcher, clock, counts)

    def take(self, header: Header, payload: bytes) -> Iterator[Batch]:
        """Batches that a frame completes.

        Raises:
            FrameError, LayoutError: what is wrong with it.
        """
        self._count_lost_frames(header)
        if header.type == Frame.NAMES:
            self._names.update(unpack_names(payload))
        elif header.type == Frame.CLOCK:
            self._set_clock(unpack_clock(payload))
        elif header.type == Frame.RANGES:
            self._stamps.append(unpack_stamps(payload))
            self._stamped = True
        elif header.type == Frame.BUFFER:
            yield from self._buffer(payload)
        elif header.type == Frame.STATS:
            self._count_dropped(unpack_text(payload))
        elif header.type == Frame.HELLO:
            raise FrameError("hello", "a second HELLO on one connection")

    def finish(self) -> Iterator[Batch]:
        """What was held back, as far as it can be told now."""
        nothing = decode(b"", self._layout)
        if self._held is not None:
            yield from self._attribute(nothing, self._held, last=True)

    def _buffer(self, payload: bytes) -> Iterator[Batch]:
        self._counts.add(catalogue.AGENT_BUFFERS_RECEIVED)
        activity = decode(payload, self._layout)
        for kind, count in activity.skipped.items():
            self._counts.add(catalogue.AGENT_RECORDS_SKIPPED, count, str(kind))
        launches, rejected = launches_of(activity, now_ns=self._now_ns())
        self._counts.add(catalogue.AGENT_SPANS_RECEIVED, len(launches) + sum(rejected.values()))
        for reason, count in rejected.items():
            self._counts.add(catalogue.AGENT_SPANS_DROPPED, count, reason)
        if self._held is not None:
            launches = self._held.joined(launches)
        yield from self._attribute(activity, launches, last=False)

    def _attribute(self, activity: Activity, launches: Launches, *, last: bool) -> Iterator[Batch]:
        place = launches.place
        step = self._tracker.feed(
            activity,
            launches.correlation,
            stream=stream_keys(place["context_id"].astype(np.uint32), place["stream_id"].astype(np.uint32)),
            gpu_start_ns=launches.start_ns,
            stamps=self._new_stamps(),
        )
        waiting = step.attribution.waiting
        ready = np.ones(len(launches), dtype=bool) if last else ~waiting
        self._held = None if ready.all() else launches.take(~ready)
        columns = self._columns(launches if ready.all() else launches.take(ready), step, ready)
        self._counts.add(catalogue.AGENT_SPANS_RECEIVED, len(step.ended))
        self._counts.add(catalogue.AGENT_SPANS_UNSTAGED, int(step.attribution.stage_unknown[ready].sum()))
        yield from self._batcher.cut(in_start_order(columns))

    def _columns(self, launches: Launches, step: Step, ready: NDArray[np.bool_]) -> SpanColumns:
        strings = Strings()
        gpus = self._batcher.gpus
        attribution = step.attribution
        configs, config = config_table(launches, name_of(self._names), {gpu.index: gpu for gpu in gpus}, strings)
        places, place = place_table(launches, {gpu.index: at + 1 for at, gpu in enumerate(gpus)})
        nodes, node = node_table(launches)
        stage = self._stage_texts(attribution.stage[ready], step, strings)
        ranges, range_stage = self._range_rows(step, strings)
        columns = make_columns(
            launches.start_ns,
            launches.duration_ns,
            tables=(tuple(strings.texts), configs, places, nodes, self._trace_table(attribution.traces)),
            kind=launches.kind,
            config=config,
            place=place,
            node=node,
            stage=stage,
            trace=attribution.trace[ready],
            parent=attribution.range_number[ready],
            correlation=launches.correlation,
            bytes=launches.bytes,
        )
        return with_ranges(columns, ranges, range_stage)

    def _stage_texts(self, numbers: Int64, step: Step, strings: Strings) -> Int32:
        """Index into strings of the names of ranges by number; NONE is empty, UNKNOWN says so."""
        distinct, index = np.unique(numbers, return_inverse=True)
        texts = np.zeros(len(distinct), dtype=np.int32)
        for at, number in enumerate(distinct.tolist()):
            if number == UNKNOWN:
                texts[at] = strings.add(UNKNOWN_STAGE)
            elif number != NONE:
                pointer = int(step.ranges.name[int(step.ranges.rows(np.array([number]))[0])])
                texts[at] = strings.add(self._text(pointer))
        return texts[index]

    def _range_rows(self, step: Step, strings: Strings) -> tuple[RangeRows, Int32]:
        ranges, ended = step.ranges, step.ended
        start = ranges.start_ns[ended]
        rows = RangeRows(
            number=ranges.number[ended],
            parent=ranges.parent[ended],
            start_ns=start,
            duration_ns=ranges.end_ns[ended] - start,
            trace=step.attribution.traces.of_ranges(ranges)[ended].astype(np.int32),
            name=np.array([strings.add(self._text(int(name))) for name in ranges.name[ended]], dtype=np.int32),
            thread=ranges.thread[ended],
        )
        return rows, self._stage_texts(rows.parent, step, strings)

    def _trace_table(self, traces: Traces) -> Table:
        table = np.zeros(len(traces), dtype=TRACE)
        ids = b"".join(derived_trace_id(self._batcher.session, traces.key(row)) for row in range(len(traces)))
        table["id"] = np.frombuffer(ids, dtype="V16")
        table["start_ns"] = traces.start_ns
        return table

    def _text(self, pointer: int) -> str:
        return clean_text(self._names.get(pointer, "unnamed"))

    def _new_stamps(self) -> Boundaries | None:
        """Stamps since the last buffer; None in a process that has never sent any, whose markers then count."""
        if not self._stamped:
            return None
        raw = np.concatenate([np.zeros(0, dtype=STAMP), *self._stamps])
        self._stamps.clear()
        return stamped_boundaries(
            raw["correlation"].astype(np.int64),
            raw["thread"].astype(np.uint64),
            delta=raw["delta"].astype(np.int64),
            name=raw["name"].astype(np.uint64),
            time_ns=raw["time_ns"].astype(np.int64),
        )

    def _set_clock(self, reading: ClockReading) -> None:
        self._process_now = reading
        self._read_at_ns = self._clock.monotonic_ns()
        self._batcher.anchor = ClockAnchor(*reading)

    def _now_ns(self) -> int | None:
        """The process's wall clock now: its last reading plus the time since; None before the first."""
        if self._process_now is None:
            return None
        return self._process_now.unix_ns + self._clock.monotonic_ns() - self._read_at_ns

    def _count_lost_frames(self, header: Header) -> None:
        lost = (header.sequence - self._next_frame) & 0xFFFFFFFF
        if lost:
            self._counts.add(catalogue.AGENT_FRAMES_LOST, lost)
        self._next_frame = header.sequence + 1

    def _count_dropped(self, said: Mapping[str, str]) -> None:
        """Spans that never came: what CUPTI or the collector dropped counts as received and dropped."""
        for key, value in said.items():
            reason = key.removeprefix("dropped.")
            if reason != key and value.isdigit() and int(value):
                self._counts.add(catalogue.AGENT_SPANS_RECEIVED, int(value))
                self._counts.add(catalogue.AGENT_SPANS_DROPPED, int(value), reason)


def _gpus(said: Mapping[str, str]) -> tuple[Gpu, ...]:
    indexes = sorted({int(key.split(".")[1]) for key in said if key.startswith("gpu.")})
    return tuple(
        Gpu(
            uuid=said[f"gpu.{index}.uuid"],
            index=index,
            name=said.get(f"gpu.{index}.name", ""),
            pci_bus_id=said.get(f"gpu.{index}.pci_bus_id", ""),
            mig_profile=said.get(f"gpu.{index}.mig_profile", ""),
            mig_instance=said.get(f"gpu.{index}.mig_instance", ""),
            **{name: int(said.get(f"gpu.{index}.{name}", "0")) for name in _GPU_NUMBERS},
        )
        for index in indexes
    )
