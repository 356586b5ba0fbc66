"""What is asked: a fleet, and how its telemetry is to be run."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from spanlite.contract.errors import UsageError

MODES = ("thread", "process")
_MOST = 1e15


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for; rates are those of the peak.

    Attributes:
        kernels_per_second: of one GPU; every kernel, copy and memory set is a span.
        series_per_gpu: kernel × launch configuration × stage × workload.
        window_s, lateness_s: of the metrics job.
        retention_s: of spans in Kafka; archive_retention_s: of the Parquet files.
        batch_spans: most spans of a batch; an agent sends what it has every flush_s.
        mode: in which the metrics job runs Python, one of MODES.
        headroom: share of a core that the average subtask is busy at the peak; what is left works off a backlog.
        broker_mbps: MB/s that a broker writes, copies for other brokers included.
        file_spans, archive_flush_s, buckets: of the archive job: a file when a producer has so many spans, or its
            oldest has waited so long; files an hour and flush.
        scrape_timeout_s: Prometheus's; an exporter's answer must be written in it.
        rate_spread: sigma of the GPUs' rates, which are taken to be lognormal; 0 for equal ones.
        bytes_per_span: of a batch on the wire, all included; None reckons it from the size of the batches.
        archive_bytes_per_span: None takes the measured figure.
    """

    gpus: int
    kernels_per_second: float
    processes_per_gpu: int = 1
    gpus_per_node: int = 8
    series_per_gpu: int = 500
    window_s: float = 10.0
    lateness_s: float = 2.0
    retention_s: float = 7 * 86400.0
    archive_retention_s: float = 30 * 86400.0
    replication: int = 3
    batch_spans: int = 65_536
    flush_s: float = 1.0
    mode: str = "thread"
    headroom: float = 0.5
    broker_mbps: float = 100.0
    checkpoint_interval_s: float = 30.0
    file_spans: int = 1 << 20
    archive_flush_s: float = 60.0
    buckets: int = 1
    scrape_timeout_s: float = 10.0
    rate_spread: float = 0.5
    bytes_per_span: float | None = None
    archive_bytes_per_span: float | None = None

    def numbers(self) -> dict[str, float]:
        """What is given as a number, by name."""
        return {name: value for name, value in asdict(self).items() if isinstance(value, int | float)}


def check(request: Request) -> None:
    """Refuses what cannot be sized.

    Raises:
        UsageError: a number is out of its range; says which, and what it may be.
    """
    for name, value in request.numbers().items():
        flag = f"--{name.removesuffix('_s').replace('_', '-')}"
        if name == "rate_spread":
            if not 0 <= value <= 2:
                raise UsageError(f"{flag} is {value:g}; give 0, for equal rates, to 2")
        elif not 0 < value <= _MOST:
            raise UsageError(f"{flag} is {value:g}; give a number above 0, up to {_MOST:g}")
    if request.headroom > 1:
        raise UsageError(f"--headroom is {request.headroom:g}; give the busy share of a core, above 0 and at most 1")
    if request.mode not in MODES:
        raise UsageError(f"--mode is {request.mode!r}; give {' or '.join(MODES)}, as the job's python.execution-mode")
