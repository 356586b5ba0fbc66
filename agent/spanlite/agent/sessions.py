"""What correlation ids are worth: of CUDA graphs, nothing in CUPTI's later sessions before 13.1 update 1.

Kinds that go off and on again begin another session, and from the second one on those releases give the kernels of a
graph the ids of other launches (NVIDIA's release notes of 13.1 update 1; pytorch/kineto issue 1165). Stage, parent and
trace come from ids, so a process that is traced in windows knows none of them for its graphs.
"""

from __future__ import annotations

from spanlite.agent.boundaries import Bool
from spanlite.agent.layouts import NO_CUPTI
from spanlite.agent.ranges import NONE, UNKNOWN
from spanlite.agent.traces import Attribution

_RIGHT_SINCE = 130101


def ids_are_right(cupti_version: int) -> bool:
    """Whether kernels of graphs have the ids of their launches in every session."""
    return cupti_version >= _RIGHT_SINCE or cupti_version == NO_CUPTI


def doubt(attribution: Attribution, graph: Bool) -> None:
    """Takes back where some launches belong.

    Args:
        graph: shape (n,), those that cannot be believed.
    """
    attribution.stage[graph] = UNKNOWN
    attribution.root[graph] = UNKNOWN
    attribution.range_number[graph] = NONE
    attribution.trace[graph] = NONE
    attribution.waiting[graph] = False
