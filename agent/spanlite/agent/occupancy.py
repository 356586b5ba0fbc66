"""Theoretical occupancy of kernel launches and the resource that limits it, by columns.

The model is that of NVIDIA's cuda_occupancy.h; the figures are shown the way Nsight Compute shows them.
docs/occupancy.md tells where every number comes from and where the two differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Limiter
from spanlite.contract.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    Ints: TypeAlias = int | Sequence[int] | NDArray[np.integer]

IntColumn = NDArray[np.int64]

WARP_SIZE: Final = 32
_KIB: Final = 1024
_VALUE_CAP: Final = 2**31 - 1  # larger inputs fit no GPU; the cap keeps every product inside int64


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one streaming multiprocessor (SM) of a compute capability offers. Sizes in bytes, registers of 32 bits."""

    major: int
    minor: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    shared_memory_configs: tuple[int, ...]  # carve-outs of the unified L1 that can serve as shared memory, ascending
    shared_memory_per_block_optin: int
    reserved_shared_memory: int  # the driver's share of every block
    shared_memory_alloc_unit: int
    barriers_per_sm: int  # 0: barriers do not limit blocks here
    max_threads_per_block: int = 1024
    registers_per_sm: int = 65536  # of which one block may take all
    max_registers_per_thread: int = 256
    register_alloc_unit: int = 256  # per warp
    sub_partitions: int = 4

    @property
    def shared_memory_per_sm(self) -> int:
        """The largest carve-out."""
        return self.shared_memory_configs[-1]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Columns of one length. A resource that a launch does not use limits it to the SM's block slots."""

    blocks_by_warps: IntColumn
    blocks_by_blocks: IntColumn
    blocks_by_registers: IntColumn
    blocks_by_shared_memory: IntColumn
    blocks_by_barriers: IntColumn
    active_blocks: IntColumn  # per SM; 0: such a launch cannot run
    active_warps: IntColumn
    max_warps: IntColumn
    limiter: IntColumn  # values of Limiter
    registers_allocated: IntColumn  # per thread
    shared_memory_allocated: IntColumn  # bytes per block, the driver's share included
    shared_memory_driver: IntColumn  # bytes per block

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Theoretical occupancy, 0 to 1: active warps over the warps that an SM can hold."""
        ratio: NDArray[np.float64] = self.active_warps / self.max_warps
        return ratio


# Carve-outs in KiB, as cudaOccAlignUpShmemSizeVoltaPlus steps through them.
_VOLTA: Final = (0, 8, 16, 32, 64, 96)
_TURING: Final = (32, 64)
_A100: Final = (0, 8, 16, 32, 64, 100, 132, 164)
_GA10X: Final = (0, 8, 16, 32, 64, 100)
_HOPPER: Final = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)

# (warps, blocks, carve-outs, KiB of shared memory that one block may opt in to, barriers)
_CAPABILITIES: Final[dict[tuple[int, int], tuple[int, int, tuple[int, ...], int, int]]] = {
    (7, 0): (64, 32, _VOLTA, 96, 0),
    (7, 2): (64, 32, _VOLTA, 96, 0),
    (7, 5): (32, 16, _TURING, 64, 0),
    (8, 0): (64, 32, _A100, 163, 0),
    (8, 6): (48, 16, _GA10X, 99, 0),
    (8, 7): (48, 16, _A100, 163, 0),
    (8, 9): (48, 24, _GA10X, 99, 0),
    (9, 0): (64, 32, _HOPPER, 227, 64),
    (10, 0): (64, 32, _HOPPER, 227, 64),
    (10, 3): (64, 32, _HOPPER, 227, 64),
    (11, 0): (48, 24, _HOPPER, 227, 24),
    (12, 0): (48, 24, _GA10X, 99, 24),
    (12, 1): (48, 24, _GA10X, 99, 24),
}


def supported_capabilities() -> tuple[tuple[int, int], ...]:
    """The compute capabilities that sm_limits knows, ascending."""
    return tuple(_CAPABILITIES)


@cache
def sm_limits(major: int, minor: int) -> SmLimits:
    """The limits of a compute capability.

    Raises:
        UsageError: the capability is not known; the message lists those that are.
    """
    row = _CAPABILITIES.get((major, minor))
    if row is None:
        known = ", ".join(f"{a}.{b}" for a, b in _CAPABILITIES)
        raise UsageError(f"no occupancy limits for compute capability {major}.{minor}; known are {known}")
    warps, blocks, configs_kib, optin_kib, barriers = row
    return SmLimits(
        major=major,
        minor=minor,
        max_warps_per_sm=warps,
        max_blocks_per_sm=blocks,
        shared_memory_configs=tuple(size * _KIB for size in configs_kib),
        shared_memory_per_block_optin=optin_kib * _KIB,
        reserved_shared_memory=_KIB if major >= 8 else 0,
        shared_memory_alloc_unit=128 if major >= 8 else 256,
        barriers_per_sm=barriers,
    )


def occupancy(
    limits: SmLimits,
    *,
    threads_per_block: Ints,
    registers_per_thread: Ints,
    static_shared_memory: Ints = 0,
    dynamic_shared_memory: Ints = 0,
    shared_memory_config: Ints | None = None,
    barriers: Ints = 0,
) -> Occupancy:
    """Theoretical occupancy of launch configurations; all columns broadcast, scalars give columns of length 1.

    Never raises on values: a launch that cannot run (no threads, 5000 threads, 300 registers, a negative size) has
    zero active blocks and the limiter that forbids it.

    Args:
        limits: of the GPU, from sm_limits.
        threads_per_block: x × y × z of the block.
        registers_per_thread: as the compiler or CUPTI states them, before rounding; 0: registers do not limit.
        static_shared_memory: bytes per block.
        dynamic_shared_memory: bytes per block.
        shared_memory_config: bytes of shared memory that the SM was set to (CUPTI: sharedMemoryExecuted, ncu:
            launch__shared_mem_config_size); rounded up to a carve-out that exists and holds one block. 0, negative or
            None: the largest.
        barriers: barriers per block; 0 or negative: unknown, taken as not limiting.
    """
    config = 0 if shared_memory_config is None else shared_memory_config
    given = (threads_per_block, registers_per_thread, static_shared_memory, dynamic_shared_memory, config, barriers)
    columns = np.broadcast_arrays(*(_capped(value) for value in given))
    threads, registers, static, dynamic, configured, barrier_count = columns
    warps = -(-np.maximum(threads, 0) // WARP_SIZE)
    registers_allocated, by_registers = _registers(limits, registers, warps)
    shared_allocated, by_shared = _shared_memory(limits, static, dynamic, configured)
    by_warps = _warps(limits, threads, warps)
    by_blocks = np.full_like(by_warps, limits.max_blocks_per_sm)
    by_barriers = _barriers(limits, barrier_count)
    table = np.stack([by_warps, by_blocks, by_registers, by_shared, by_barriers])  # in the order of Limiter
    active = table.min(axis=0)
    return Occupancy(
        blocks_by_warps=by_warps,
        blocks_by_blocks=by_blocks,
        blocks_by_registers=by_registers,
        blocks_by_shared_memory=by_shared,
        blocks_by_barriers=by_barriers,
        active_blocks=active,
        active_warps=active * warps,
        max_warps=np.full_like(active, limits.max_warps_per_sm),
        limiter=table.argmin(axis=0) + int(Limiter.WARPS),  # argmin names the first of equals
        registers_allocated=registers_allocated,
        shared_memory_allocated=shared_allocated,
        shared_memory_driver=np.full_like(active, limits.reserved_shared_memory),
    )


def _capped(value: Ints) -> IntColumn:
    """The value as a column of int64, bounded so that no later product overflows."""
    column = np.atleast_1d(value)
    if not np.can_cast(column.dtype, np.int64):  # uint64, or Python integers beyond 64 bits
        column = np.clip(column.astype(object), -1, _VALUE_CAP)
    return np.clip(column.astype(np.int64), -1, _VALUE_CAP)


def _warps(limits: SmLimits, threads: IntColumn, warps: IntColumn) -> IntColumn:
    fits = (threads > 0) & (threads <= limits.max_threads_per_block)
    return np.where(fits, limits.max_warps_per_sm // np.maximum(warps, 1), 0)


def _barriers(limits: SmLimits, count: IntColumn) -> IntColumn:
    slots = limits.max_blocks_per_sm
    if not limits.barriers_per_sm:
        return np.full_like(count, slots)
    blocks: IntColumn = np.minimum(limits.barriers_per_sm // np.maximum(count, 1), slots)
    return blocks


def _registers(limits: SmLimits, registers: IntColumn, warps: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Registers allocated per thread, and the blocks that the register file holds.

    A sub-partition holds whole warps of its own quarter of the file. That a block may use all of the file's registers,
    spread evenly, is implied: it holds exactly when one block fits.
    """
    unit, parts = limits.register_alloc_unit, limits.sub_partitions
    per_warp = -(-np.maximum(registers, 0) * WARP_SIZE // unit) * unit
    warps_per_sm = limits.registers_per_sm // parts // np.maximum(per_warp, 1) * parts
    blocks = np.where(per_warp == 0, limits.max_blocks_per_sm, warps_per_sm // np.maximum(warps, 1))
    forbidden = (registers > limits.max_registers_per_thread) | (registers < 0)
    return per_warp // WARP_SIZE, np.where(forbidden, 0, blocks)


def _shared_memory(
    limits: SmLimits, static: IntColumn, dynamic: IntColumn, configured: IntColumn
) -> tuple[IntColumn, IntColumn]:
    """Bytes allocated per block, and the blocks that the configured shared memory holds."""
    unit = limits.shared_memory_alloc_unit
    allocated = -(-(np.maximum(static, 0) + np.maximum(dynamic, 0) + limits.reserved_shared_memory) // unit) * unit
    wanted = np.maximum(np.where(configured <= 0, limits.shared_memory_per_sm, configured), allocated)
    sizes = np.array(limits.shared_memory_configs)
    config = sizes[np.minimum(np.searchsorted(sizes, wanted), len(sizes) - 1)]
    blocks = np.where(allocated == 0, limits.max_blocks_per_sm, config // np.maximum(allocated, 1))
    largest = limits.shared_memory_per_block_optin + limits.reserved_shared_memory
    forbidden = (allocated > largest) | (static < 0) | (dynamic < 0)
    return allocated, np.where(forbidden, 0, blocks)
