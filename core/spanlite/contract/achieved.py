"""What a GPU's hardware counters are called on the wire, where they travel as the node agent's own observations.

Their rows bear MARK for a stage. No program can make such a row: its observations have no stage.
"""

from __future__ import annotations

from typing import NamedTuple

from spanlite.contract import catalogue
from spanlite.contract.catalogue import MetricSpec
from spanlite.contract.columns import COUNTER, GAUGE

MARK = "spanlite.agent.counters"
KERNEL_ACTIVE = "spanlite_kernel_achieved_active_nanoseconds_total"
KERNEL_WARPS = "spanlite_kernel_achieved_warp_nanoseconds_total"
KERNEL = "kernel"
"""The only label: a kernel's bounded id."""


class Shown(NamedTuple):
    """What becomes of an observation: its kind, the family that shows it, and what divides its value there."""

    kind: int
    spec: MetricSpec
    divisor: int = 1


SHOWN = {
    catalogue.GPU_SM_ACTIVE.name: Shown(GAUGE, catalogue.GPU_SM_ACTIVE),
    catalogue.GPU_TENSOR_ACTIVE.name: Shown(GAUGE, catalogue.GPU_TENSOR_ACTIVE),
    catalogue.GPU_WARPS_ACTIVE.name: Shown(GAUGE, catalogue.GPU_WARPS_ACTIVE),
    catalogue.GPU_DRAM_READ.name: Shown(COUNTER, catalogue.GPU_DRAM_READ),
    catalogue.GPU_DRAM_WRITE.name: Shown(COUNTER, catalogue.GPU_DRAM_WRITE),
    catalogue.GPU_L2_SECTORS.name: Shown(COUNTER, catalogue.GPU_L2_SECTORS),
    KERNEL_ACTIVE: Shown(COUNTER, catalogue.KERNEL_ACHIEVED_ACTIVE, 10**9),
    KERNEL_WARPS: Shown(COUNTER, catalogue.KERNEL_ACHIEVED_WARPS, 10**9),
}
"""All of them, by name, in the order in which they are shown."""
