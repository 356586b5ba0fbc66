"""How sampling of a GPU stands, in one word, and what is to be done about it."""

from __future__ import annotations

from spanlite.contract.errors import CountersError

STARTING, SAMPLING, SLOWED = "starting", "sampling", "slowed"
FORBIDDEN, BUSY, UNSUPPORTED = "forbidden", "busy", "unsupported"
GONE, FAILED, STUCK, UNAVAILABLE, ABSENT = "gone", "failed", "stuck", "unavailable", "absent"

OUT_OF_MEMORY = 8
"""CUPTI's word of a full hardware buffer, when it decodes."""
NOT_SUPPORTED = 27
_BY_RESULT = {
    **dict.fromkeys((35, 40), FORBIDDEN),
    # Enabling says 7 of a device that this process samples already; 39 of a second profiler within it.
    **dict.fromkeys((7, 26, 39), BUSY),
    # Also: the chip's name (46) or a metric (17) is not known to this CUPTI, or the metrics take several passes (-4).
    **dict.fromkeys((11, 17, NOT_SUPPORTED, 28, 29, 31, 33, 41, 42, 43, 44, 45, 46, -4), UNSUPPORTED),
    **dict.fromkeys((2, -2), GONE),
    -1: UNAVAILABLE,
}
_ADVICE = {
    FORBIDDEN: "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or give the agent CAP_SYS_ADMIN",
    BUSY: "another client has the counters: end Nsight, or `dcgmi profile --pause`, or leave this GPU to it",
    UNSUPPORTED: "leave this GPU out by --counters-gpus; docs/counters.md says which can be sampled",
    GONE: "look at nvidia-smi and the kernel's log for Xid errors",
    FAILED: "it is tried again",
    UNAVAILABLE: "install NVIDIA's driver and libcupti of CUDA 12.6 or later, or name it by --counters-cupti",
    ABSENT: "name a GPU of this node as nvidia-smi -L writes it",
}


def state_of(error: CountersError) -> str:
    """The word for what a call was refused with."""
    return _BY_RESULT.get(error.result, FAILED)


def advice(state: str) -> str:
    """What to do about a state; empty where there is nothing."""
    return _ADVICE.get(state, "")
