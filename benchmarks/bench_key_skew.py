"""How evenly Kafka's partitioner and Flink's key groups spread the load of many producers.

    python benchmarks/bench_key_skew.py [--json FILE]

10,000 GPUs on hosts of 8. Kafka: the agents' keys, host/GPU-UUID, murmur2 modulo partitions. Flink: producers as 32 hex
digits, the key's hashCode through murmur3's finish modulo the maximum parallelism, groups in contiguous runs to
subtasks. Shown is the load of the fullest bin over the mean: the mean of five sets of keys and the worst, for equal
rates and for lognormal ones (sigma 0.5 and 1), beside what `spanlite.pipeline.sizing.skew` expects.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))

from benchmarks._table import Figure, json_path, show  # noqa: E402 - run as a script, its folder is the path
from spanlite.pipeline.sizing.skew import hottest_share  # noqa: E402

KEYS, SEEDS = 10_000, 5
PARTITIONS = (16, 32, 64, 128, 256, 512, 1024)
SUBTASKS = (4, 8, 16, 32, 64, 128)
MAX_PARALLELISM = (128, 256, 512, 1024, 2048, 4096)
SPREADS = (0.0, 0.5, 1.0)

Bytes = NDArray[np.uint8]
Hashes = NDArray[np.uint32]

# Of the tests of Kafka's own client (UtilsTest.testMurmur2).
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
# Key → group of 32,768, and subtask of 100 with 4,096 groups: Flink 2.3's KeyGroupRangeAssignment on Row.of(key), which
# is the key of a Python job.
GROUPS = {
    b"": (19617, 78),
    b"foobar": (3444, 84),
    b"00000000000000000000000000000000": (18172, 43),
    b"0123456789abcdef0123456789abcdef": (5197, 26),
    b"GPU-00000000-0000-0000-0000-000000000001": (2222, 54),
}


def murmur2(keys: Bytes) -> Hashes:
    """Kafka's hash of equally long keys, shape (n, length)."""
    length = keys.shape[1]
    m = np.uint32(0x5BD1E995)
    h = np.full(len(keys), 0x9747B28C ^ length, dtype=np.uint32)
    whole = length // 4 * 4
    for k in np.ascontiguousarray(keys[:, :whole]).view("<u4").T:
        mixed = k * m
        mixed = (mixed ^ (mixed >> np.uint32(24))) * m
        h = (h * m) ^ mixed
    if whole < length:
        for at in range(length - 1, whole - 1, -1):
            h ^= keys[:, at].astype(np.uint32) << np.uint32(8 * (at - whole))
        h *= m
    h = (h ^ (h >> np.uint32(13))) * m
    return h ^ (h >> np.uint32(15))


def partition(keys: Bytes, partitions: int) -> NDArray[np.int64]:
    """Partition of each key, as `murmur2_random` and the Java client choose it."""
    return (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def key_group(keys: Bytes, groups: int) -> NDArray[np.int64]:
    """Flink's key group of each key, shape (n, length), of a Python job: the hash is that of a row of one string."""
    h = np.zeros(len(keys), dtype=np.uint32)
    for column in keys.T:
        h = h * np.uint32(31) + column
    h = (h + np.uint32(62)) * np.uint32(0xCC9E2D51)
    h = _rotated(h, 15) * np.uint32(0x1B873593)
    h = _rotated(h, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    signed = h.view(np.int32).astype(np.int64)
    return np.where(signed == -(2**31), 0, np.abs(signed)) % groups


def _rotated(h: Hashes, by: int) -> Hashes:
    return (h << np.uint32(by)) | (h >> np.uint32(32 - by))


def subtask(groups: NDArray[np.int64], parallelism: int, most: int) -> NDArray[np.int64]:
    """The subtask that each key group belongs to."""
    return groups * parallelism // most


def rows_of(texts: list[bytes]) -> Bytes:
    """Equally long texts as rows of bytes."""
    return np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(len(texts), len(texts[0]))


def check() -> None:
    """Compares both hashes with what Kafka and Flink say."""
    for text, expected in MURMUR2.items():
        assert int(murmur2(rows_of([text])).view(np.int32)[0]) == expected
    for text, (group, of_100) in GROUPS.items():
        assert int(key_group(rows_of([text]), 1 << 15)[0]) == group
        assert int(subtask(key_group(rows_of([text]), 4096), 100, 4096)[0]) == of_100


@cache
def worlds() -> list[tuple[Bytes, Bytes, dict[float, NDArray[np.float64]]]]:
    """Kafka keys, producers, and the rate of each by spread; other ones for each seed."""
    made = []
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        identity = random.integers(0, 256, (KEYS, 16), dtype=np.uint8)
        hexed = [row.tobytes().hex() for row in identity]
        uuids = [f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}" for h in hexed]
        keys = rows_of([f"node-{at // 8:05d}/{uuid}".encode() for at, uuid in enumerate(uuids)])
        producers = random.integers(0, 256, (KEYS, 16), dtype=np.uint8)
        producers[:, 8:] = np.frombuffer((130500).to_bytes(8, "big"), dtype=np.uint8)  # all trace with one CUPTI
        rates = {spread: random.lognormal(0.0, spread, KEYS) if spread else np.ones(KEYS) for spread in SPREADS}
        made.append((keys, rows_of([row.tobytes().hex().encode() for row in producers]), rates))
    return made


Place = Callable[[Bytes, Bytes], NDArray[np.int64]]


def skew(place: Place, bins: int) -> dict[str, Figure]:
    """Fullest over mean for each spread: mean and worst of the seeds, and what the model expects."""
    found: dict[float, list[float]] = {spread: [] for spread in SPREADS}
    for keys, producers, rates in worlds():
        placed = place(keys, producers)
        for spread, rate in rates.items():
            load = np.bincount(placed, weights=rate, minlength=bins)
            found[spread].append(float(load.max() / load.mean()))
    row: dict[str, Figure] = {}
    for spread, factors in found.items():
        name = f"sigma {spread:g}" if spread else "equal"
        row[name], row[f"{name}, worst"] = float(np.mean(factors)), max(factors)
        row[f"{name}, model"] = bins * hottest_share(KEYS, bins, spread)
    return row


def main() -> None:
    """Checks the hashes, prints both tables and, if asked, writes the figures."""
    path = json_path("fullest partition and subtask over the mean")
    check()
    kafka: list[dict[str, Figure]] = [
        {"partitions": bins, **skew(lambda keys, _, bins=bins: partition(keys, bins), bins)}  # type: ignore[misc]
        for bins in PARTITIONS
    ]
    flink: list[dict[str, Figure]] = []
    for bins in SUBTASKS:
        for most in MAX_PARALLELISM:

            def place(_: Bytes, producers: Bytes, bins: int = bins, most: int = most) -> NDArray[np.int64]:
                return subtask(key_group(producers, most), bins, most)

            flink.append({"subtasks": bins, "max parallelism": most, **skew(place, bins)})
    show(f"Kafka: {KEYS:,} keys, fullest partition over the mean", kafka)
    show(f"\nFlink: {KEYS:,} producers, fullest subtask over the mean", flink)
    if path:
        path.write_text(json.dumps({"kafka": kafka, "flink": flink}, indent=1) + "\n")


if __name__ == "__main__":
    main()
