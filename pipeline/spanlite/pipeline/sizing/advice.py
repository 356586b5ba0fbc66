"""What to do with the numbers: settings to type, what fills up first, and what to change where the answer is no."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spanlite.pipeline.sizing.figures import Figure
from spanlite.pipeline.sizing.request import Request
from spanlite.pipeline.sizing.serving import FEWEST_PARTITIONS
from spanlite.pipeline.sizing.sheet import Line, number, quantity

_MANY_FILES = 10_000
_DEFAULT_SERIES_CAP = 2000


def advise(request: Request, figures: Mapping[str, Figure], lines: Sequence[Line]) -> list[str]:
    """Sentences for whoever sets it up.

    Args:
        lines: what `size` made of the same request and figures.
    """
    at = {line.name: line.value for line in lines}
    rates = {name: figure.value for name, figure in figures.items()}
    busy = at["spans"] / rates["decode_fold_spans_per_core_second"]
    busy += at["spans"] / rates["archive_write_spans_per_core_second"]
    if at["nodes"] == 1 and busy <= request.headroom:
        return [
            (
                f"one process is enough: the embedded runner, with neither Kafka nor Flink, folds and archives this "
                f"with {100 * busy:.2g} % of a core; what follows is for the day when it is not"
            ),
            *_settings(request, at),
        ]
    return [*_settings(request, at), *_limits(request, at), _first_full(request, at)]


def _settings(request: Request, at: Mapping[str, float]) -> Iterator[str]:
    yield (
        f"spanlite topics create --partitions {at['partitions']:.0f} --replication {request.replication}: partitions "
        "of spans can be added later, those of points cannot, and none can be taken away"
    )
    for job in ("metrics", "archive"):
        yield (
            f"{job} job: parallelism.default: {at[f'{job}_slots']:.0f}, pipeline.max-parallelism: "
            f"{at[f'{job}_max_parallelism']:.0f} at its first start"
        )
    sets = at["label_sets"] / at["exporters"]
    if sets > _DEFAULT_SERIES_CAP:
        yield f"spanlite exporter --series-cap {sets * 1.25:.0f}, a quarter above its label sets"


def _limits(request: Request, at: Mapping[str, float]) -> Iterator[str]:
    if at["exporters"] > 1:
        yield (
            f"one exporter serves about {number(max(1, int(_exporter_gpus(request, at))))} such GPUs: give each such "
            "share of the fleet brokers, jobs and an exporter of its own, or have fewer series (--top-k of the metrics "
            "job)"
        )
    for job in ("metrics", "archive"):
        if at[f"{job}_hottest"] > 1:
            yield (
                f"{job} job: the fullest subtask would need {at[f'{job}_hottest']:.1f} cores, and more subtasks do not "
                "help, since one process is one key: spread its work over more GPUs and processes, or trace fewer"
            )
    if at["files"] > _MANY_FILES:
        yield (
            f"the archive gets {number(round(at['files']))} files an hour: raise --flush and --file-spans of the "
            "archive job, and compact each closed hour (spanlite archive compact)"
        )
    if at["partitions"] > max(FEWEST_PARTITIONS, request.gpus):
        yield (
            f"{at['partitions']:.0f} partitions for {request.gpus} keys: some stay empty; a batch's key is its host "
            "and GPU, so subtasks that read them idle, while those that fold and write share the work all the same"
        )


def _first_full(request: Request, at: Mapping[str, float]) -> str:
    """Which of the parts that one has at least one of is full first, by the number of such GPUs."""
    core = request.gpus * request.headroom
    full = {
        "one exporter": _exporter_gpus(request, at),
        "one core of the metrics job": core / at["metrics_busy"],
        "one core of the archive job": core / at["archive_busy"],
        f"{request.replication} brokers": request.gpus
        * request.replication
        * request.broker_mbps
        * 1e6
        / at["written"],
    }
    order = sorted(full, key=lambda part: full[part])
    told = ", ".join(f"{part} at {quantity(max(1.0, float(int(full[part]))), 'GPUs')}" for part in order)
    return f"full first as the fleet grows: {told}"


def _exporter_gpus(request: Request, at: Mapping[str, float]) -> float:
    """How many such GPUs fill one exporter."""
    needed = max(at["reading"], at["scrape_s"] / request.scrape_timeout_s) / request.headroom
    return request.gpus / needed
