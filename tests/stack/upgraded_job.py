"""The metrics job of a later version: one operator more, with state of its own, between the totals and the topic."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from spanlite.pipeline.jobs.functions import KEYED
from spanlite.pipeline.jobs.metrics import parse, streams, write
from spanlite.pipeline.jobs.options import environment
from spanlite.pipeline.jobs.state import FlinkValue


class OnlyChanges(KeyedProcessFunction):  # type: ignore[misc]  # pyflink ships no types
    """Lets a point through unless it is the one that was let through last."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Takes hold of state."""
        self._last = FlinkValue(runtime_context, "last")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[tuple[bytes, bytes]]:  # noqa: ARG002
        """One point."""
        point = bytes(value[1])
        if self._last.get() == point:
            return []
        self._last.put(point)
        return [(bytes(value[0]), point)]


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    env = environment(options)
    made = streams(env, options)
    changes = (
        made.points.key_by(lambda row: bytes(row[0]).hex(), key_type=Types.STRING())
        .process(OnlyChanges(), output_type=KEYED)
        .uid("only-changes")
    )
    write(env, made._replace(points=changes), options)
    env.execute("spanlite metrics, the next version")
