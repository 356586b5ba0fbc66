"""Damaged batches against the decoder: counts by what became of them; only BatchError may escape.

    python benchmarks/fuzz_codec.py [--mutations 1000000] [--seed 1] [--json FILE]

What is accepted in spite of its damage is encoded and decoded once more and must stay the same.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), *(str(_ROOT / part) for part in ("proto", "core"))]

from spanlite.contract.codec import decode_batch, encode_batch  # noqa: E402 - the source roots come first
from spanlite.contract.columns import equal  # noqa: E402
from spanlite.contract.errors import BatchError  # noqa: E402
from tests.contract.mutations import Mutator, corpus  # noqa: E402


def outcome(data: bytes) -> str:
    """The reason for which a damaged batch was refused, or "accepted".

    Raises:
        AssertionError: an accepted batch is not the same after another round.
    """
    try:
        batch = decode_batch(data)
    except BatchError as error:
        return error.reason
    assert len(batch.span_ids) == len(batch.parent_span_ids) == len(batch.end_ns) == len(batch.columns)
    again = decode_batch(encode_batch(batch))
    assert equal(batch.columns, again.columns)
    return "accepted"


def peak_mib() -> float:
    """The most memory that this process has held; ru_maxrss would start at the peak of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Runs the mutations, prints counts, and ends with exit code 1 if anything but BatchError escaped."""
    parser = argparse.ArgumentParser(description="damaged batches against the decoder")
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts there")
    arguments = parser.parse_args()
    assert {outcome(data) for data in corpus()} == {"accepted"}
    mutator, counts, before, begin = Mutator(arguments.seed), Counter[str](), peak_mib(), time.perf_counter()
    for number in range(arguments.mutations):
        data = mutator.next()
        try:
            counts[outcome(data)] += 1
        except Exception:
            print(f"mutation {number} of seed {arguments.seed} escaped: {data.hex()}", file=sys.stderr)
            raise
    taken_s, grown = time.perf_counter() - begin, peak_mib() - before
    for reason, count in counts.most_common():
        print(f"{reason:<16}{count:>10,}")
    print(f"{'all':<16}{counts.total():>10,}   {taken_s:.1f} s, peak memory +{grown:.1f} MiB")
    if arguments.json:
        figures = {"mutations": counts.total(), "reasons": counts, "grown_mib": grown, "seconds": taken_s}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
