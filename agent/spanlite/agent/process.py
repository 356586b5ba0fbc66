"""One traced process as the agent sees it: frames in, batches of attributed spans out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np

from spanlite.agent.activity import Activity, decode
from spanlite.agent.assembly import Assembly
from spanlite.agent.batcher import Batcher
from spanlite.agent.boundaries import Boundaries, stamped_boundaries
from spanlite.agent.columns import in_start_order
from spanlite.agent.counts import AgentCounts
from spanlite.agent.frames import STAMP, Frame, Header, unpack_clock, unpack_names, unpack_stamps, unpack_text
from spanlite.agent.frames import Clock as ClockReading
from spanlite.agent.headsampling import HeadSampler
from spanlite.agent.hello import Hello, read_hello
from spanlite.agent.kernelsource import SourceTable
from spanlite.agent.launches import Launches
from spanlite.agent.layouts import NO_CUPTI, Layout, layout_for
from spanlite.agent.observations import Observations, unpack_observations
from spanlite.agent.sessions import doubt, ids_are_right
from spanlite.agent.sources import ProcessSources
from spanlite.agent.speakers import STANDS_FOR
from spanlite.agent.traces import stream_keys
from spanlite.agent.tracker import Step, Tracker
from spanlite.agent.validate import validate
from spanlite.agent.windows import unpack_windows
from spanlite.agent.work import launches_of
from spanlite.contract import catalogue
from spanlite.contract.batch import Batch, ClockAnchor
from spanlite.contract.columns import Int64, SamplingMode, Table
from spanlite.contract.errors import FrameError
from spanlite.runtime.clock import Clock

_MOST_STAMPS = 1 << 16
"""Stamps that wait for the launches between them, at most."""


class TracedProcess:
    """Names, clock, ranges and numbering of one connection.

    `take` handles a frame after HELLO; `finish` gives out what was held back. A launch is held back while the record
    that decides its stage may still come.
    """

    def __init__(
        self,
        layout: Layout,
        batcher: Batcher,
        clock: Clock,
        counts: AgentCounts,
        *,
        sources: ProcessSources | None = None,
        sampler: HeadSampler | None = None,
    ) -> None:
        self._layout = layout
        self._batcher = batcher
        self._clock = clock
        self._counts = counts
        self._sources = sources or ProcessSources(SourceTable(), 0)
        self._assembly = Assembly(batcher.session, batcher.gpus, self._sources.lasting)
        self._tracker = Tracker(context_of=self._assembly.contexts.of)
        self._sampler = sampler or HeadSampler()
        if self._sampler.one_in > 1 and layout.version != NO_CUPTI:  # whose spans have no traces
            batcher.sampling = SamplingMode.TRACES
        self._observations = Observations(batcher.gpus, counts)
        self._held: Launches | None = None
        self._stamps: list[Table] = []
        self._stamped = False
        self._process_now: ClockReading | None = None
        self._read_at_ns = 0
        self._next_frame = 1

    @classmethod
    def from_hello(
        cls,
        header: Header,
        payload: bytes,
        pid: int,
        clock: Clock,
        counts: AgentCounts,
        *,
        identify: Callable[[Hello], Hello] = lambda said: said,
        sources: ProcessSources | None = None,
        sampler: HeadSampler | None = None,
    ) -> TracedProcess:
        """A process by its first frame.

        Args:
            pid: as the kernel says it; inside a container a process knows another number.
            identify: puts what others know of the process in the place of what it says.
            sources: where just-in-time kernels come from, as this or another connection of the process said.
            sampler: which traces are kept; all without it.

        Raises:
            FrameError: the first frame is no HELLO, or lacks a value.
            LayoutError: its CUPTI version is not known, or its record sizes contradict it.
        """
        if header.type != Frame.HELLO:
            raise FrameError("hello", f"the first frame is {header.type.name}, not HELLO")
        said = identify(read_hello(payload))
        resource = {
            "cupti.version": str(said.cupti_version),
            "host.name": os.uname().nodename,
            **said.resource,
            "process.pid": str(pid),
        }
        producer = said.session.to_bytes(8, "big") + said.cupti_version.to_bytes(8, "big")
        batcher = Batcher(producer, said.session, resource, said.gpus, clock)
        return cls(layout_for(said.cupti_version, said.sizes), batcher, clock, counts, sources=sources, sampler=sampler)

    def stands_for(self, processes: int) -> None:
        """For how many processes the spans of batches from now on stand, which then say so."""
        told = self._batcher.resource.get(STANDS_FOR, "1")
        if told != str(processes):
            plain = {name: value for name, value in self._batcher.resource.items() if name != STANDS_FOR}
            self._batcher.resource = plain | ({STANDS_FOR: str(processes)} if processes > 1 else {})

    def take(self, header: Header, payload: bytes) -> Iterator[Batch]:
        """Batches that a frame completes.

        Raises:
            FrameError, LayoutError: what is wrong with it.
        """
        self._count_lost_frames(header)
        self._check_type(header)
        if header.type == Frame.RANGES:
            self._stamps.append(unpack_stamps(payload))
            self._stamped = True
            if sum(map(len, self._stamps)) > _MOST_STAMPS:  # a program may mark ranges and never use the GPU
                yield from self._without_records(last=False)
        elif header.type == Frame.BUFFER:
            yield from self._buffer(payload)
        elif header.type == Frame.WINDOWS:
            self._assembly.windows.add(unpack_windows(payload))
            if self._assembly.windows.sampled:
                self._batcher.sampling = SamplingMode.DUTY_CYCLE
        elif header.type == Frame.OBSERVATIONS:
            records, names = unpack_observations(payload), self._assembly.names
            for observed in self._observations.take(records, names, self._clock.unix_ns()):
                yield from self._batcher.cut(in_start_order(observed))
        else:
            self._learn(header.type, payload)

    def _learn(self, kind: Frame, payload: bytes) -> None:
        """Frames of which no batch comes at once."""
        if kind == Frame.NAMES:
            self._assembly.learn(unpack_names(payload))
        elif kind == Frame.CLOCK:
            self._set_clock(unpack_clock(payload))
        elif kind == Frame.KERNEL_SOURCE:
            self._sources.take(payload)
        elif kind == Frame.STATS:
            self._counts.add_told(unpack_text(payload))

    def _check_type(self, header: Header) -> None:
        if header.type == Frame.HELLO:
            raise FrameError("hello", "a second HELLO on one connection")
        if self._layout.version == NO_CUPTI and header.type in (Frame.BUFFER, Frame.RANGES, Frame.WINDOWS):
            raise FrameError("no_cupti", f"{header.type.name} of a client that said it has no CUPTI")

    def finish(self) -> Iterator[Batch]:
        """What was held back, as far as it can be told now."""
        if self._held is not None or self._stamps:
            yield from self._without_records(last=True)

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

    def _without_records(self, *, last: bool) -> Iterator[Batch]:
        nothing = decode(b"", self._layout)
        held = self._held or launches_of(nothing, now_ns=None)[0]
        yield from self._attribute(nothing, held, last=last)

    def _attribute(self, activity: Activity, launches: Launches, *, last: bool) -> Iterator[Batch]:
        context, stream = (launches.of_shape(name).astype(np.uint32) for name in ("context_id", "stream_id"))
        step = self._tracker.feed(
            activity,
            launches.correlation,
            stream=stream_keys(context, stream)[launches.shape],
            gpu_start_ns=launches.start_ns,
            stamps=self._new_stamps(),
        )
        if self._assembly.windows.sampled and not ids_are_right(self._layout.version):
            doubt(step.attribution, (launches.of_shape("graph_id") != 0)[launches.shape])
        waiting = step.attribution.waiting
        ready = np.ones(len(launches), dtype=bool) if last else ~waiting
        self._tracker.sent(step.attribution, ready)
        self._held = None if ready.all() else launches.take(~ready)
        told = launches if ready.all() else launches.take(ready)
        sampled = self._sampler.sample(self._assembly.columns(told, step, ready, self._plausible(step)))
        self._counts.add(catalogue.AGENT_SPANS_UNSTAGED, int(step.attribution.stage_unknown[ready].sum()))
        if sampled.left_out:
            self._counts.add(catalogue.AGENT_SPANS_SAMPLED_OUT, sampled.left_out)
        if sampled.capped:
            self._counts.add(catalogue.AGENT_WEIGHTS_CAPPED, sampled.capped)
        yield from self._batcher.cut(in_start_order(sampled.columns))

    def _plausible(self, step: Step) -> Int64:
        """The ranges that ended and whose times can be; the others are dropped and counted. Contexts are no spans."""
        ended = step.ended[~step.ranges.is_context[step.ended]]
        start, end = step.ranges.start_ns[ended], step.ranges.end_ns[ended]
        # Unlike work on the GPU, a range may be shorter than the clock's step.
        keep, rejected = validate(start, end + (end == start), now_ns=self._now_ns())
        self._counts.add(catalogue.AGENT_SPANS_RECEIVED, len(ended))
        for reason, count in rejected.items():
            self._counts.add(catalogue.AGENT_SPANS_DROPPED, count, reason)
        return ended[keep]

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
        if lost >= 1 << 31:
            raise FrameError("sequence", f"frame {header.sequence} comes after frame {self._next_frame - 1}")
        if lost:
            self._counts.add(catalogue.AGENT_FRAMES_LOST, lost)
        self._next_frame = header.sequence + 1
