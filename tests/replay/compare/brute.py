"""What a comparison must find, reckoned span by span over dictionaries, with none of the code under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from spanlite.contract.batch import Batch
from spanlite.replay.identity import Keys

WORD = 1 << 64
Identity = tuple[int, int, int]
"""Turn, session and number: of rows their row number, of ranges 2^63 and theirs."""
Span = dict[str, Any]


def mix(value: int) -> int:
    """SplitMix64's finaliser, by its definition."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % WORD
    return value ^ (value >> 31)


def unmix(value: int) -> int:
    """Its inverse, step by step."""
    value ^= value >> 31 ^ value >> 62
    value = value * pow(0x94D049BB133111EB, -1, WORD) % WORD
    value ^= value >> 27 ^ value >> 54
    value = value * pow(0xBF58476D1CE4E5B9, -1, WORD) % WORD
    return value ^ value >> 30 ^ value >> 60


def spans_of(batch: Batch, keys: Keys | None = None, back_ns: int = 0) -> list[tuple[tuple[int, int], Span]]:
    """Session, number and all values of each row, ids unmapped and times moved back."""
    columns, found = batch.columns, []
    session = batch.session ^ (keys.session if keys else 0)
    resource = {name: value for name, value in batch.resource.items() if name != "spanlite.replay.run"}
    clock = batch.clock
    head = {
        "emit_ns": batch.emit_ns - back_ns,
        "resource": sorted(resource.items()),
        "gpus": batch.gpus,
        "clock": (clock.cupti_ns, clock.unix_ns - back_ns if clock.unix_ns else 0, clock.uncertainty_ns),
        "sampling": batch.sampling,
    }
    for row in range(len(columns)):
        config, place = columns.configs[columns.config[row]], columns.places[columns.place[row]]
        node = columns.nodes[columns.node[row]]
        span: Span = {
            **{name: int(config[name]) for name in config.dtype.names if name not in ("kernel", "name", "limiter")},
            **{name: int(place[name]) for name in place.dtype.names if name != "gpu"},
            **{name: int(node[name]) for name in node.dtype.names},
            **{name: int(getattr(columns, name)[row]) for name in ("duration_ns", "kind", "bytes", "weight")},
            **head,
            "occupancy_limiter": int(config["limiter"]),
            "kernel": columns.strings[config["kernel"]],
            "name": columns.strings[config["name"]],
            "gpu_uuid": asdict(batch.gpus[place["gpu"] - 1]) if place["gpu"] else None,
            "start_ns": int(columns.start_ns[row]) - back_ns,
            "stage": columns.strings[columns.stage[row]],
            "parent_span_id": int(columns.parent[row]),
            "correlation_id": int(columns.correlation[row]),
        }
        number = int(columns.range_number[row])
        at = int(columns.trace[row])
        trace = columns.traces[at] if at >= 0 else None
        span["trace_id"] = _unmapped(trace["id"].tobytes(), keys) if trace is not None else None
        remote = int(trace["remote_parent"]) if trace is not None else 0
        span["trace_remote_parent"] = mix(unmix(remote) ^ keys.session) if remote and keys else remote
        start = int(trace["start_ns"]) if trace is not None else 0
        span["trace_start_ns"] = start - back_ns if start else 0
        found.append(((session, number | 1 << 63 if number >= 0 else batch.first_row + row), span))
    return found


def _unmapped(trace: bytes, keys: Keys | None) -> bytes:
    return bytes(a ^ b for a, b in zip(trace, keys.trace, strict=True)) if keys else trace


def expected(original: list[tuple[Identity, Span]], came: list[tuple[Identity, Span]]) -> dict[str, Any]:
    """The figures of both sides, each in the order in which it comes."""
    ours = dict(original)
    theirs: dict[Identity, Span] = {}
    duplicate = 0
    for identity, span in came:
        if identity in theirs and identity in ours:
            duplicate += 1
        theirs.setdefault(identity, span)
    foreign = [identity for identity, _ in came if identity not in ours]
    matched = [identity for identity in ours if identity in theirs]
    columns: Counter[str] = Counter()
    changed = 0
    for identity in matched:
        unlike = [name for name, value in ours[identity].items() if theirs[identity][name] != value]
        columns.update(unlike)
        changed += bool(unlike)
    starts, durations = (
        [abs(theirs[identity][name] - ours[identity][name]) for identity in matched]
        for name in ("start_ns", "duration_ns")
    )
    names = [{(key[0], span["trace_id"]) for key, span in side if span["trace_id"]} for side in (original, came)]
    relations = [_relations(side) for side in (ours, theirs)]
    failed = {
        trace
        for trace in names[0] | names[1]
        if relations[0].get(trace) != relations[1].get(trace) or (trace in names[0]) != (trace in names[1])
    }
    return {
        "spans_original": len(original),
        "spans_replay": len(came),
        "missing": len(ours) - len(matched),
        "duplicate": duplicate,
        "foreign": len(foreign),
        "changed": changed,
        "columns": dict(columns),
        "traces_original": len(names[0]),
        "traces_replay": len(names[1]),
        "traces_failed": len(failed),
        "failed": failed,
        "start_error_max_ns": max(starts, default=0),
        "start_error_mean_ns": sum(starts) / max(len(starts), 1),
        "duration_error_max_ns": max(durations, default=0),
        "duration_error_mean_ns": sum(durations) / max(len(durations), 1),
        "timing_error_ns": max([*starts, *durations], default=0),
    }


def _relations(side: dict[Identity, Span]) -> dict[tuple[int, bytes], set[tuple[Any, ...]]]:
    found: dict[tuple[int, bytes], set[tuple[Any, ...]]] = {}
    for identity, span in side.items():
        if span["trace_id"]:
            edge = (identity, span["parent_span_id"], span["trace_remote_parent"])
            found.setdefault((identity[0], span["trace_id"]), set()).add(edge)
    return found


def ks(left: Sequence[int], right: Sequence[int]) -> float:
    """Kolmogorov and Smirnov's D by its definition: the largest difference of two shares."""
    return max(
        abs(sum(a <= at for a in left) / len(left) - sum(b <= at for b in right) / len(right)) for at in (*left, *right)
    )


def w1(left: Sequence[int], right: Sequence[int]) -> float:
    """Mean distance of the samples, each repeated until both are as many, in their orders."""
    ours = sorted(a for a in left for _ in right)
    theirs = sorted(b for b in right for _ in left)
    return sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / len(ours)


def pearson(left: Sequence[float], right: Sequence[float]) -> float:
    """Pearson's r by its definition."""
    ours, theirs = sum(left) / len(left), sum(right) / len(right)
    both = sum((a - ours) * (b - theirs) for a, b in zip(left, right, strict=True))
    return float(both / (sum((a - ours) ** 2 for a in left) * sum((b - theirs) ** 2 for b in right)) ** 0.5)
