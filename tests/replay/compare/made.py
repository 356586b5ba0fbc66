"""Small random batches, a run over them, and what may go wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from spanlite.contract.batch import Batch, ClockAnchor, Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Kind, make_columns
from spanlite.replay.compare.comparing import Replayed, compare
from spanlite.replay.compare.figures import Report
from spanlite.replay.compare.sides import Came
from spanlite.replay.compare.told import Told
from spanlite.replay.identity import Keys, Names, remapped, stamped
from spanlite.replay.selection import Selection
from spanlite.replay.shift import shifted

GPUS = (Gpu("GPU-a", 0), Gpu("GPU-b", 1))
TRACES = [bytes([number]) * 16 for number in range(1, 5)]
NOW_NS = 1_700_000_000_000_000_000
Change = Callable[[list[Batch]], list[Batch]]


def told(**facts: Any) -> Told:
    """A run that kept all as it was, but for what is given."""
    plain: dict[str, Any] = {
        "run": "r",
        "seed": 3,
        "remapped": False,
        "selection": Selection(),
        "order": "arrival",
        "loops": 1,
        "offset_ns": 0,
        "period_ns": 0,
        "most_spans": None,
        "archive": "traces",
        "output": "out",
        "lost": {},
        "pacing": {"speed": "max", "by": "arrival"},
    }
    return Told(**{**plain, **facts})


def batch(draw: Any, number: int, first_row: int, session: int) -> Batch:
    """A batch of one to six spans: kernels, copies and ranges, some of them in traces and under ranges."""
    rows = draw(st.integers(1, 6))
    ids = draw(st.lists(st.sampled_from(TRACES), min_size=1, max_size=3, unique=True))
    traces = np.zeros(len(ids), dtype=TRACE)
    for at, trace in enumerate(ids):
        traces[at] = (trace, draw(st.sampled_from([0, 77])), draw(st.sampled_from([0, NOW_NS])))
    kinds = np.array(draw(st.lists(st.sampled_from([1, 2, 4]), min_size=rows, max_size=rows)), dtype=np.uint8)
    configs, places = np.zeros(2, dtype=CONFIG), np.zeros(2, dtype=PLACE)
    configs["kernel"], configs["name"], configs["block_x"] = [1, 2], [2, 3], [32, 64]
    places["gpu"], places["stream_id"] = [0, 1], [0, 7]

    def values(least: int, most: int) -> Any:
        return np.array(draw(st.lists(st.integers(least, most), min_size=rows, max_size=rows)), dtype=np.int64)

    is_range = kinds == Kind.RANGE
    return Batch(
        producer=session.to_bytes(16, "big"),
        sequence=number,
        session=session,
        first_row=first_row,
        emit_ns=NOW_NS + 1000 * number,
        columns=make_columns(
            NOW_NS + values(-50, 50),
            values(0, 50),
            tables=(("", "k", "void k<int>()", "name", "prefill"), configs, places, np.zeros(1, dtype=NODE), traces),
            kind=kinds,
            config=values(0, 1),
            place=values(0, 1),
            stage=values(0, 1) * 4,
            trace=values(-1, len(ids) - 1),
            parent=values(-1, 3),
            range_number=np.where(is_range, first_row + np.arange(rows), -1),
            correlation=values(0, 9),
            bytes=np.where(kinds == Kind.MEMCPY, values(0, 99), 0),
            weight=values(1, 3),
        ),
        resource={"host.name": f"node-{session}"},
        gpus=GPUS[: 1 + session % 2],
        clock=ClockAnchor(5, NOW_NS, 2) if draw(st.booleans()) else ClockAnchor(),
    )


@st.composite
def originals(draw: Any) -> list[Batch]:
    """Batches of one or two sessions in the order of emission, rows numbered on in each."""
    rows = dict.fromkeys((11, 12), 0)
    made = []
    for number in range(draw(st.integers(1, 4))):
        session = draw(st.sampled_from([11, 12]))
        made.append(batch(draw, number, rows[session], session))
        rows[session] += len(made[-1].columns)
    return made


def emitted(original: list[Batch], run: Told) -> list[Batch]:
    """What a run emits, by the code that replays use."""
    names = Names(run.run, run.seed, kept=run.kept)
    out = []
    for loop in range(run.loops):
        for one in original:
            made = remapped(one, Keys.of(run.run, run.seed, loop)) if run.remapped else one
            out.append(stamped(names.named(shifted(made, run.moved_ns(loop)), loop=loop, part=0), run.run))
    return out


def compared(original: list[Batch], came: list[Batch], run: Told, **bounds: int) -> Report:
    """The report of batches beside batches."""
    messages = [Came(one, 10) for one in came]
    producers = {one.producer for one in original}
    sides = Replayed("out", "file", messages)
    return compare(run, lambda: list(original), sides, where="traces", producers=producers, **bounds)


def with_column(one: Batch, name: str, row: int, value: int) -> Batch:
    """The batch with another value in a column of one row."""
    values = getattr(one.columns, name).copy()
    values[row] = value
    return replace(one, columns=replace(one.columns, **{name: values}))


def without_row(one: Batch, row: int) -> list[Batch]:
    """The batch without one row; those behind it keep their numbers, so they are a batch of their own."""
    head = replace(one, columns=one.columns.take(slice(0, row)))
    tail = replace(one, first_row=one.first_row + row + 1, columns=one.columns.take(slice(row + 1, None)))
    return [part for part in (head, tail) if len(part.columns)]


def _named(one: Batch, row: int, value: int) -> Batch:
    """Another kernel name for one row."""
    columns = one.columns
    configs = np.append(columns.configs, columns.configs[columns.config[row] : columns.config[row] + 1])
    configs["kernel"][-1] = len(columns.strings)
    texts = (*columns.strings, f"other-{value}")
    changed = replace(columns, configs=configs, strings=texts)
    return with_column(replace(one, columns=changed), "config", row, len(configs) - 1)


def _one(one: Batch, name: str, row: int, value: int) -> list[Batch]:
    """What becomes of one batch."""
    if name == "drop":
        return without_row(one, row)
    if name in ("again", "foreign"):
        return [one, one if name == "again" else replace(one, session=one.session ^ 1 << 40)]
    return [_changed(one, name, row, value)]


def _changed(one: Batch, name: str, row: int, value: int) -> Batch:
    """The batch with something else in one row, or in its head."""
    if name == "kernel":
        return _named(one, row, value)
    if name == "resource":
        return replace(one, resource={**one.resource, "workload": str(value)})
    if name == "emit_ns":
        return replace(one, emit_ns=one.emit_ns + value)
    others = {
        "start_ns": NOW_NS + value,
        "duration_ns": value,
        "correlation": value,
        "weight": 1 + value,
        "parent": value - 1,
        "trace": value % (len(one.columns.traces) + 1) - 1,
    }
    return with_column(one, name, row, others[name])


FAULTS = (
    *("drop", "again", "swap", "foreign", "kernel", "trace", "parent", "resource", "emit_ns"),
    *("start_ns", "duration_ns", "correlation", "weight"),
)


@st.composite
def faults(draw: Any) -> Change:
    """Up to four things that go wrong, one after the other."""
    wrong = draw(st.lists(st.tuples(st.sampled_from(FAULTS), *[st.integers(0, 40)] * 3), max_size=4))

    def apply(batches: list[Batch]) -> list[Batch]:
        for name, at, row, value in wrong:
            if not batches:
                return batches
            place = at % len(batches)
            if name == "swap":
                other = value % len(batches)
                batches[place], batches[other] = batches[other], batches[place]
                continue
            one = batches[place]
            batches[place : place + 1] = _one(one, name, row % len(one.columns), value)
        return batches

    return apply
