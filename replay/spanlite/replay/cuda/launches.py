"""From kernels as they were recorded to launches that this GPU can make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spanlite.contract.columns import Int32, Int64
from spanlite.replay.cuda.library import LAUNCH, Calibration, Enactor
from spanlite.replay.cuda.ptx import LEAST_REGISTERS, OWN, busy_text, entry_name
from spanlite.replay.cuda.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Launches:
    """What a timeline's kernels are on this GPU.

    Attributes:
        of_kernel: index of the launch, -1 where a block does not fit on this GPU, shape (k,).
        least_ns: the shortest duration that each kernel can have here, 0 where it does not fit, shape (k,).
        functions: distinct names, registers and static shared memory.
        cut: kernels whose grid was cut to one wave.
        other_registers: kernels whose registers could not be had, which may change their occupancy.
        calibration: of the GPU.
    """

    of_kernel: Int32
    least_ns: Int64
    functions: int
    cut: int
    other_registers: int
    calibration: Calibration


def make_launches(timeline: Timeline, enactor: Enactor, told: Callable[[int, int], object]) -> Launches:
    """Compiles a busy kernel for each that is in the timeline, and measures each launch once.

    A grid of more blocks than the GPU holds at a time is cut to as many as were held of it when it was recorded, by its
    theoretical occupancy: blocks that come when a kernel is over end at once, but a great many of them take their time.

    Args:
        timeline: what is to be launched.
        enactor: the GPU.
        told: is told how many kernels are compiled, and of how many.

    Raises:
        ReplayError: the driver refuses a kernel.
    """
    kernels, names = timeline.kernels, timeline.names
    functions: dict[_Function, tuple[int, int]] = {}
    wanted = [_Function.of(kernel, names) for kernel in kernels]
    for one in dict.fromkeys(wanted):
        functions[one] = _compiled(enactor, one)
        told(len(functions), len(set(wanted)))
    of_kernel = np.full(len(kernels), -1, np.int32)
    launches = np.zeros(len(kernels), LAUNCH)
    used = cut = other = 0
    for at, (one, kernel) in enumerate(zip(wanted, kernels, strict=True)):
        function, registers = functions[one]
        grid, block = ([int(kernel[f"{what}_{axis}"]) for axis in "xyz"] for what in ("grid", "block"))
        launch = np.array((function, grid, block, int(kernel["dynamic_shared_memory"])), LAUNCH)
        resident = enactor.resident(launch)
        if not resident:
            continue
        wave = _wave(kernel, block, resident) * enactor.processors
        if np.prod(grid) > wave:
            launch["grid"] = wave, 1, 1
            cut += 1
        other += _granules(registers) != _granules(int(kernel["registers_per_thread"]))
        launches[used] = launch
        of_kernel[at] = used
        used += 1
    enactor.launches(launches[:used])
    calibration, _, least = enactor.calibrate()
    for queue in timeline.queues:
        enactor.queue(int(queue["priority"]))
    return Launches(of_kernel, np.append(least, 0)[of_kernel], len(functions), cut, other, calibration)


@dataclass(frozen=True, slots=True)
class _Function:
    """What is compiled once."""

    entry: str
    registers: int
    static_shared: int

    @staticmethod
    def of(kernel: np.void, names: list[str]) -> _Function:
        registers = max(int(kernel["registers_per_thread"]), LEAST_REGISTERS)
        return _Function(entry_name(names[kernel["name"]]), registers, int(kernel["static_shared_memory"]))


def _compiled(enactor: Enactor, function: _Function) -> tuple[int, int]:
    """A busy kernel whose registers are given out as those that are asked for, or what comes closest."""
    best = (-1, 0)
    for own in OWN:
        text = busy_text(function.entry, function.registers, static_shared=function.static_shared, own=own)
        found = enactor.function(text, function.entry)
        if found[1] > best[1]:
            best = found
        if _granules(best[1]) == _granules(function.registers):
            break
    return best


def _wave(kernel: np.void, block: list[int], resident: int) -> int:
    """Blocks of one multiprocessor at a time: as recorded, where that is known, but no more than this GPU holds."""
    warps = -(-int(np.prod(block)) // 32)
    return min(resident, int(kernel["active_warps"]) // warps or resident)


def _granules(registers: int) -> int:
    """Registers of a thread as they are given out, in eights; up to 32 they never limit occupancy."""
    return max(-(-registers // 8), 4)
