"""Attributed launches and closed ranges to span columns with their tables: what a batch is cut from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from spanlite.agent.columns import RangeRows, with_ranges
from spanlite.agent.launches import Launches, Strings, config_table, node_table, place_table
from spanlite.agent.ranges import UNKNOWN
from spanlite.agent.tracecontext import Contexts
from spanlite.agent.traceids import TraceIds
from spanlite.agent.tracker import Step
from spanlite.agent.windows import Windows
from spanlite.agent.work import name_of
from spanlite.contract.batch import Gpu
from spanlite.contract.columns import UNKNOWN_STAGE, Int32, Int64, SpanColumns, UInt64, make_columns
from spanlite.contract.names import clean_text


class Assembly:
    """The names and trace ids of one traced process, and the columns that are made with them.

    Attributes:
        names: texts by pointer, as NAMES frames told them; those of contexts are in `contexts` instead.
        contexts: the traceparents among them.
        windows: in which the process was traced; their weights become those of the spans.

    Args:
        lasting: the name that a just-in-time kernel keeps, see `work.name_of`.
    """

    def __init__(self, session: int, gpus: tuple[Gpu, ...], lasting: Callable[[str], str]) -> None:
        self.names: dict[int, str] = {}
        self.contexts = Contexts()
        self.windows = Windows(session)
        self._gpus = gpus
        self._lasting = lasting
        self._trace_ids = TraceIds(session)

    def learn(self, names: Iterable[tuple[int, str]]) -> None:
        """Takes texts and their pointers in."""
        for pointer, text in names:
            if self.contexts.learn(pointer, text):
                self.names.pop(pointer, None)
            else:
                self.names[pointer] = text

    def columns(self, launches: Launches, step: Step, ready: NDArray[np.bool_], ended: Int64) -> SpanColumns:
        """Rows of the launches, then of the ranges.

        Args:
            launches: shape (n,), those of the step that are ready.
            step: where all of the step's launches belong.
            ready: which of the step's launches those are.
            ended: rows of the step's ranges that become spans; contexts do not.
        """
        strings = Strings()
        attribution = step.attribution
        configs, config = config_table(
            launches, name_of(self.names, self._lasting), {gpu.index: gpu for gpu in self._gpus}, strings
        )
        places, place = place_table(launches, {gpu.index: at + 1 for at, gpu in enumerate(self._gpus)})
        nodes, node = node_table(launches)
        stage = self._stage_texts(attribution.stage[ready], step, strings)
        ranges = self._range_rows(step, ended, strings)
        range_stage = self._stage_texts(step.ranges.outer[ended], step, strings)
        trace = attribution.trace[ready]
        traces = self._trace_ids.table(attribution.traces, trace, ranges.trace)
        columns = make_columns(
            launches.start_ns,
            launches.duration_ns,
            tables=(tuple(strings.texts), configs, places, nodes, traces),
            kind=launches.of_shape("kind")[launches.shape],
            config=config,
            place=place,
            node=node,
            stage=stage,
            trace=trace,
            parent=attribution.range_number[ready],
            correlation=launches.correlation,
            bytes=launches.bytes,
            weight=self.windows.weights(launches.start_ns),
        )
        return with_ranges(columns, ranges, range_stage)

    def _range_rows(self, step: Step, ended: Int64, strings: Strings) -> RangeRows:
        ranges = step.ranges
        start = ranges.start_ns[ended]
        return RangeRows(
            number=ranges.number[ended],
            parent=ranges.under[ended],
            start_ns=start,
            duration_ns=ranges.end_ns[ended] - start,
            trace=step.attribution.traces.of_ranges(ranges)[ended].astype(np.int32),
            name=self._range_texts(ranges.name[ended], strings),
            thread=ranges.thread[ended],
        )

    def _stage_texts(self, numbers: Int64, step: Step, strings: Strings) -> Int32:
        """Index into strings of the names of ranges by number; NONE is empty, UNKNOWN says so."""
        if not len(numbers):
            return np.zeros(0, dtype=np.int32)
        # Launches come in runs of one stage: a few hundred runs are less to sort than 30,000 launches.
        run = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
        distinct, index = np.unique(numbers[run], return_inverse=True)
        texts = np.zeros(len(distinct), dtype=np.int32)
        named = distinct >= 0
        texts[named] = self._range_texts(step.ranges.name[step.ranges.rows(distinct[named])], strings)
        texts[distinct == UNKNOWN] = strings.add(UNKNOWN_STAGE) if (distinct == UNKNOWN).any() else 0
        return np.repeat(texts[index.reshape(-1)], np.diff(np.append(run, len(numbers))))

    def _range_texts(self, pointers: UInt64, strings: Strings) -> Int32:
        """Index into strings of the names of ranges."""
        distinct, index = np.unique(pointers, return_inverse=True)
        texts = [strings.add(clean_text(self.names.get(pointer, "unnamed"))) for pointer in distinct.tolist()]
        return np.array(texts, dtype=np.int32)[index.reshape(-1)]
