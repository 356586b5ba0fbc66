"""The occupancy model against NVIDIA's own calculator, and figures worked out by hand."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from spanlite.agent.occupancy import occupancy, sm_limits, supported_capabilities
from spanlite.contract.columns import Limiter
from spanlite.contract.errors import UsageError

INT_MAX = 2**31 - 1
KIB = 1024

# CUDA programming guide, technical specifications per compute capability:
# threads per SM, KiB of shared memory per SM, KiB that one block may opt in to, KiB that the driver keeps per block.
GUIDE = {
    (7, 0): (2048, 96, 96, 0),
    (7, 2): (2048, 96, 96, 0),
    (7, 5): (1024, 64, 64, 0),
    (8, 0): (2048, 164, 163, 1),
    (8, 6): (1536, 100, 99, 1),
    (8, 7): (1536, 164, 163, 1),
    (8, 9): (1536, 100, 99, 1),
    (9, 0): (2048, 228, 227, 1),
    (10, 0): (2048, 228, 227, 1),
    (10, 3): (2048, 228, 227, 1),
    (11, 0): (1536, 228, 227, 1),
    (12, 0): (1536, 100, 99, 1),
    (12, 1): (1536, 100, 99, 1),
}


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that answers configurations with cuda_occupancy.h of the package nvidia-cuda-runtime."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++ to compile NVIDIA's calculator")
    files = importlib.metadata.files("nvidia-cuda-runtime") or []
    header = next(file for file in files if file.name == "cuda_occupancy.h")
    program = tmp_path_factory.mktemp("judge") / "judge"
    source = Path(__file__).with_name("occupancy_judge.cpp")
    include = Path(str(header.locate())).parent
    subprocess.run([compiler, "-O1", "-w", f"-I{include}", str(source), "-o", str(program)], check=True)
    return program


def ask(judge: Path, columns: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The judge's ten answers per configuration, shape (10, n)."""
    questions = np.ascontiguousarray(np.stack(columns, axis=1))
    answer = subprocess.run([judge], input=questions.tobytes(), capture_output=True, check=True).stdout
    return np.frombuffer(answer, dtype=np.int64).reshape(len(questions), 10).T


def random_launches(seed: int, count: int) -> dict[str, NDArray[np.int64]]:
    """Launches of every kind: usual and odd block sizes, little and much of each resource, some that cannot run."""
    rng = np.random.default_rng(seed)
    usual = rng.choice([32, 64, 96, 128, 192, 256, 384, 512, 768, 1024], count)
    static = rng.integers(0, rng.choice([1, 300, 8192, 49153], count))
    return {
        "threads": np.where(rng.random(count) < 0.5, usual, rng.integers(0, 1100, count)),
        "registers": rng.integers(0, rng.choice([1, 40, 129, 300], count)),
        "static": static,
        "dynamic": rng.integers(0, rng.choice([1, 2000, 40000, 236000], count)),
        "barriers": np.where(rng.random(count) < 0.5, rng.integers(0, 3, count), rng.integers(0, 17, count)),
        "carveout": np.where(rng.random(count) < 0.2, -1, rng.integers(0, 101, count)),  # percent; -1: no preference
    }


def first_limiter(answer: NDArray[np.int64]) -> NDArray[np.int64]:
    """The calculator's bit field as one Limiter; barriers count only where they cut below the other four."""
    factors, by_warps, by_blocks, by_registers, by_shared, by_barriers = answer[2:8]
    others = np.minimum.reduce([by_warps, by_blocks, by_registers, by_shared])
    first = np.select(
        [(factors & bit) != 0 for bit in (0x01, 0x08, 0x02, 0x04)],
        [Limiter.WARPS, Limiter.BLOCKS, Limiter.REGISTERS, Limiter.SHARED_MEMORY],
    )
    assert ((factors & 0x10) != 0)[by_barriers < others].all()
    return np.where(by_barriers < others, Limiter.BARRIERS, first)


@pytest.mark.parametrize("capability", GUIDE)
def test_every_figure_equals_nvidias_calculator_on_random_launches(judge: Path, capability: tuple[int, int]) -> None:
    """4000 launches per capability: active blocks, each limit, the limiter and both allocations agree exactly."""
    major, minor = capability
    threads_per_sm, shared_kib, optin_kib, driver_kib = GUIDE[capability]
    launch = random_launches(seed=major * 100 + minor, count=4000)
    device = (major, minor, 1024, threads_per_sm, 65536, 65536, 32, 48 * KIB, shared_kib * KIB, 1)
    fixed = [np.full(4000, value) for value in (*device, optin_kib * KIB, driver_kib * KIB)]
    kernel = [launch[name] for name in ("registers", "static", "dynamic", "barriers", "carveout", "threads")]
    answer = ask(judge, [*fixed, *kernel])
    preferred = np.maximum(launch["carveout"] * shared_kib * KIB // 100, 1)
    ours = occupancy(
        sm_limits(major, minor),
        threads_per_block=launch["threads"],
        registers_per_thread=launch["registers"],
        static_shared_memory=launch["static"],
        dynamic_shared_memory=launch["dynamic"],
        shared_memory_config=np.where(launch["carveout"] < 0, 0, preferred),
        barriers=launch["barriers"],
    )
    refused = answer[0] != 0
    np.testing.assert_array_equal(refused, launch["threads"] == 0)  # the calculator answers all but empty blocks
    np.testing.assert_array_equal(ours.active_blocks[refused], 0)
    asked = ~refused
    answer = answer[:, asked]
    slots = answer[4]
    unused_as_slots = np.where(answer == INT_MAX, slots, answer)
    warps = -(-launch["threads"][asked] // 32)
    expected = {
        "active_blocks": answer[1],
        "blocks_by_warps": answer[3],
        "blocks_by_blocks": slots,
        "blocks_by_registers": unused_as_slots[5],
        "blocks_by_shared_memory": unused_as_slots[6],
        "blocks_by_barriers": np.minimum(answer[7], slots),  # shown as Nsight Compute shows it
        "limiter": first_limiter(answer),
        "shared_memory_allocated": answer[9],
        "active_warps": answer[1] * warps,
    }
    for name, column in expected.items():
        np.testing.assert_array_equal(getattr(ours, name)[asked], column, err_msg=name)
    np.testing.assert_array_equal(ours.registers_allocated[asked] * 32 * warps, answer[8])
    assert set(ours.max_warps) == {threads_per_sm // 32}
    assert set(ours.shared_memory_driver) == {driver_kib * KIB}
    seen = set(ours.limiter[asked].tolist())
    barriers_limit = {Limiter.BARRIERS} if major >= 9 else set()
    assert seen == {Limiter.WARPS, Limiter.BLOCKS, Limiter.REGISTERS, Limiter.SHARED_MEMORY} | barriers_limit


def test_supported_capabilities_are_those_of_the_guide() -> None:
    """No capability is missing from the comparison above."""
    assert set(supported_capabilities()) == set(GUIDE)


@pytest.mark.parametrize("capability", GUIDE)
def test_each_carve_out_is_used_as_configured(judge: Path, capability: tuple[int, int]) -> None:
    """Whatever size the SM is set to, a 4 KiB block fits as often as the calculator says for that carve-out."""
    major, minor = capability
    threads_per_sm, shared_kib, optin_kib, driver_kib = GUIDE[capability]
    limits = sm_limits(major, minor)
    sizes = np.array([size for size in limits.shared_memory_configs if size], dtype=np.int64)
    percent = -(-sizes * 100 // (shared_kib * KIB))  # the smallest percentage that reaches the size…
    percent -= percent * shared_kib * KIB // 100 > sizes  # …or the one below it where it overshoots
    device = (major, minor, 1024, threads_per_sm, 65536, 65536, 32, 48 * KIB, shared_kib * KIB, 1)
    fixed = [np.full(len(sizes), value) for value in (*device, optin_kib * KIB, driver_kib * KIB, 0, 4096, 0, 0)]
    answer = ask(judge, [*fixed, percent, np.full(len(sizes), 32)])
    ours = occupancy(
        limits,
        threads_per_block=32,
        registers_per_thread=0,
        static_shared_memory=4096,
        shared_memory_config=sizes,
    )
    np.testing.assert_array_equal(ours.blocks_by_shared_memory, answer[6])
    assert sizes[-1] == shared_kib * KIB


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "warps", "limiter"),
    [
        # 65536 registers: 4 quarters × (16384 // (56 × 32)) = 36 warps, 4 whole blocks of 8
        ((9, 0), 256, 56, 0, 4, 32, Limiter.REGISTERS),
        # 48 warps // 8
        ((8, 6), 256, 32, 0, 6, 48, Limiter.WARPS),
        # 24 block slots, one warp each
        ((8, 9), 32, 32, 0, 24, 24, Limiter.BLOCKS),
        # 163 KiB and the driver's 1 KiB fill the A100's 164 KiB
        ((8, 0), 128, 32, 163 * 1024, 1, 4, Limiter.SHARED_MEMORY),
        # 64 KiB // 10240 on Turing, where the driver keeps nothing
        ((7, 5), 64, 32, 10000, 6, 12, Limiter.SHARED_MEMORY),
    ],
)
def test_known_launches(  # noqa: PLR0917
    capability: tuple[int, int], threads: int, registers: int, shared: int, blocks: int, warps: int, limiter: Limiter
) -> None:
    """Figures worked out by hand from the guide's tables."""
    result = occupancy(
        sm_limits(*capability),
        threads_per_block=threads,
        registers_per_thread=registers,
        dynamic_shared_memory=shared,
    )
    assert (result.active_blocks[0], result.active_warps[0], result.limiter[0]) == (blocks, warps, limiter)
    assert result.ratio[0] == warps / sm_limits(*capability).max_warps_per_sm


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limiter"),
    [
        (0, 32, 0, Limiter.WARPS),
        (-5, 32, 0, Limiter.WARPS),
        (5000, 32, 0, Limiter.WARPS),
        (2**70, 32, 0, Limiter.WARPS),
        (128, 300, 0, Limiter.REGISTERS),
        (128, -1, 0, Limiter.REGISTERS),
        (128, 2**62, 0, Limiter.REGISTERS),
        (1024, 128, 0, Limiter.REGISTERS),
        (128, 32, 228 * 1024, Limiter.SHARED_MEMORY),
        (128, 32, -1, Limiter.SHARED_MEMORY),
        (128, 32, 2**63, Limiter.SHARED_MEMORY),
    ],
)
def test_a_launch_that_cannot_run_has_no_blocks_and_says_why(
    threads: int, registers: int, shared: int, limiter: Limiter
) -> None:
    """Garbage and oversized launches get zero and the resource that forbids them, never an exception."""
    result = occupancy(
        sm_limits(9, 0), threads_per_block=threads, registers_per_thread=registers, dynamic_shared_memory=shared
    )
    assert (result.active_blocks[0], result.active_warps[0], result.limiter[0]) == (0, 0, limiter)
    assert result.ratio[0] == 0.0


def test_sizes_at_the_end_of_64_bits_do_not_wrap_round() -> None:
    """Two sizes whose sum overflows are still too large, not negative."""
    result = occupancy(
        sm_limits(9, 0),
        threads_per_block=128,
        registers_per_thread=32,
        static_shared_memory=2**63 - 1,
        dynamic_shared_memory=2**63 - 1,
    )
    assert (result.active_blocks[0], result.limiter[0]) == (0, Limiter.SHARED_MEMORY)


def test_ties_go_to_warps_then_blocks_then_registers() -> None:
    """The limiter of equals is the first in the documented order."""
    limits = sm_limits(9, 0)
    # 64 warps // 2 = 32 = block slots = 32 KiB // 1 KiB
    warps_first = occupancy(limits, threads_per_block=64, registers_per_thread=16, shared_memory_config=32768)
    assert warps_first.limiter[0] == Limiter.WARPS
    # block slots 32 = 32 KiB // 1 KiB, warps 64
    blocks_next = occupancy(limits, threads_per_block=32, registers_per_thread=16, shared_memory_config=32768)
    assert blocks_next.limiter[0] == Limiter.BLOCKS
    # registers 4 × (16384 // (64 × 32)) // 4 = 8 = 64 KiB // 8 KiB
    registers_next = occupancy(
        limits,
        threads_per_block=128,
        registers_per_thread=64,
        static_shared_memory=7168,
        shared_memory_config=65536,
    )
    assert (registers_next.blocks_by_registers[0], registers_next.blocks_by_shared_memory[0]) == (8, 8)
    assert registers_next.limiter[0] == Limiter.REGISTERS


def test_columns_of_any_integer_type_broadcast_to_one_length() -> None:
    """Small and unsigned columns, as records hold them, meet scalars without overflow."""
    result = occupancy(
        sm_limits(9, 0),
        threads_per_block=np.array([128, 256, 512], dtype=np.uint16),
        registers_per_thread=np.array([32], dtype=np.uint8),
        dynamic_shared_memory=np.array([0, 2**64 - 1, 0], dtype=np.uint64),
        shared_memory_config=[32768, 0, 0],
    )
    assert result.active_blocks.tolist() == [16, 0, 4]
    assert {getattr(result, name).shape for name in ("limiter", "max_warps", "shared_memory_driver")} == {(3,)}


def test_no_launches_give_empty_columns() -> None:
    """An empty batch is no special case."""
    empty = np.array([], dtype=np.int64)
    result = occupancy(sm_limits(8, 0), threads_per_block=empty, registers_per_thread=empty)
    assert result.active_blocks.shape == result.ratio.shape == (0,)


def test_an_unknown_capability_is_refused_with_the_known_ones() -> None:
    """The message names what was asked and what could have been."""
    with pytest.raises(UsageError, match=r"capability 6\.1; known are 7\.0, 7\.2, 7\.5, 8\.0, .*12\.0, 12\.1"):
        sm_limits(6, 1)


def test_limits_are_made_once_per_capability() -> None:
    """Callers may ask for the limits per batch."""
    assert sm_limits(9, 0) is sm_limits(9, 0)
