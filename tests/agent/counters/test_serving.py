"""A recorded run and samples of its GPU, all the way to the page: figures against a loop over records and samples."""

from __future__ import annotations

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from spanlite.contract.names import kernel_id
from tests.agent.counters.building import Built
from tests.agent.counters.serving import RECORDING, STEP_NS, UUID, sampled
from tests.agent.records import copies, kernels, load


def owners() -> list[tuple[str, int]]:
    """Fate of each sample, and the row of the kernel that ran alone over the whole of it."""
    work = [(kernel.start, kernel.end, row) for row, kernel in enumerate(kernels(RECORDING))]
    work += [
        (start, end, -1) for name, start, end, *_ in copies(RECORDING) if name in ("memset", "memcpy_device_to_device")
    ]
    work.sort()
    longest = max(end - start for start, end, _ in work)
    found, first = [], 0
    for begin, *_ in sampled():
        past = begin + STEP_NS
        while first < len(work) and work[first][0] < begin - longest:
            first += 1
        meets = []
        for at in range(first, len(work)):
            if work[at][0] >= past:
                break
            if work[at][1] > begin:
                meets.append(work[at])
        if len(meets) != 1:
            found.append(("shared" if meets else "unseen", -1))
        elif meets[0][0] <= begin and meets[0][1] >= past:
            found.append(("copy" if meets[0][2] < 0 else "owned", meets[0][2]))
        else:
            found.append(("partial", -1))
    return found


def test_from_samples_and_records_to_the_page(built: Built) -> None:
    """Achieved occupancy would be another kernel's, or no mean weighted by time; bytes would be lost on the way."""
    said = built.scenario("serving", module="serving")
    assert said["failures"] == []
    assert (said["lost"], said["late"], said["adds up"]) == ({}, 0, True)
    assert (said["enabled"], said["hosts"], said["violations"]) == (0, 0, 0)
    names, rows = load(RECORDING)[1]["names"], kernels(RECORDING)
    active, warps, fates = Counter[str](), Counter[str](), Counter[str]()
    for (fate, row), (_, of_active, of_warps, _) in zip(owners(), sampled(), strict=True):
        fates[fate] += 1
        if fate == "owned":
            kernel = kernel_id(names[str(rows[row].name)])
            active[kernel] += of_active * STEP_NS // 64
            warps[kernel] += of_active * of_warps * STEP_NS // 64 // 16
    assert {fate: count for fate, count in said["fates"].items() if count} == fates
    assert fates["owned"] > 1000
    assert len(active) == 3
    assert {"owned", "partial", "shared", "unseen"} <= set(fates)
    shown: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(said["page"]):
        for sample in family.samples:
            if sample.name.startswith(("spanlite_gpu_", "spanlite_kernel_achieved")):
                assert sample.labels["UUID"] == UUID
                shown.setdefault(sample.name, {})[sample.labels.get("kernel", "")] = sample.value
    assert shown["spanlite_kernel_achieved_occupancy_ratio"] == {name: warps[name] / active[name] for name in active}
    assert shown["spanlite_kernel_achieved_active_seconds_total"] == {name: active[name] / 1e9 for name in active}
    assert shown["spanlite_kernel_achieved_warp_seconds_total"] == {name: warps[name] / 1e9 for name in active}
    samples = sampled()
    assert shown["spanlite_gpu_dram_read_bytes_total"] == {"": sum(read for *_, read in samples)}
    assert shown["spanlite_gpu_l2_sectors_total"] == {"": 3 * len(samples)}
    total = 64 * len(samples)
    assert shown["spanlite_gpu_sm_active_ratio"] == {"": sum(one[1] for one in samples) / total}
    assert shown["spanlite_gpu_warps_active_ratio"] == {"": sum(one[1] * one[2] for one in samples) / total / 16}
    assert shown["spanlite_gpu_tensor_active_ratio"] == {"": sum(one[1] for one in samples) / total / 2}
