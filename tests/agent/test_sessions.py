"""Where correlation ids cannot be believed, stages are unknown and never another launch's."""

from __future__ import annotations

import numpy as np
import pytest

from spanlite.agent import process as processes
from spanlite.agent.frames import Frame
from spanlite.agent.sessions import ids_are_right
from spanlite.agent.windows import WINDOW
from spanlite.contract.columns import RANGE, UNKNOWN_STAGE, SamplingMode
from tests.agent.collector.recorded import fired
from tests.agent.playing import process, rows, take

_WINDOW = np.array([(1, 2, 1, SamplingMode.DUTY_CYCLE, 0)], dtype=WINDOW).tobytes()
_FULL = np.array([(1, 1, 1, SamplingMode.FULL, 0)], dtype=WINDOW).tobytes()


def test_the_versions_are_those_of_the_release_notes() -> None:
    """13.1 update 1 is the first that is right; a client without CUPTI has no ids."""
    assert [ids_are_right(version) for version in (28, 130001, 130100, 130101, 130500, 0)] == [
        *(False, False, False),
        *(True, True, True),
    ]


@pytest.mark.parametrize(
    ("right", "window", "doubted"), [(False, _WINDOW, True), (False, _FULL, False), (True, _WINDOW, False)]
)
def test_graphs_of_a_process_in_windows_have_no_stage_there(
    monkeypatch: pytest.MonkeyPatch, *, right: bool, window: bytes, doubted: bool
) -> None:
    """Of a recording with graphs and other launches the graphs' kernels alone, and only from a second session on."""
    monkeypatch.setattr(processes, "ids_are_right", lambda _: right)
    what = fired("graph-cupti130500", 0x1000)
    traced = process()
    found = rows([*take(traced, [(Frame.WINDOWS, window), (Frame.BUFFER, what.records)]), *traced.finish()])
    plain = process()
    known = rows([*take(plain, [(Frame.BUFFER, what.records)]), *plain.finish()])
    graph = (found["graph_id"] != 0) & (found["kind"] != RANGE)
    assert 0 < graph.sum() < len(graph)
    if doubted:
        assert set(found["stage"][graph]) == {UNKNOWN_STAGE}
        assert set(found["parent"][graph]) == {-1}
        assert set(found["trace"][graph]) == {b""}
        assert sorted(found["stage"][~graph]) == sorted(
            known["stage"][~((known["graph_id"] != 0) & (known["kind"] != RANGE))]
        )
    else:
        assert sorted(found["stage"]) == sorted(known["stage"])
