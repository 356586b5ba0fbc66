"""What the spool shows."""

from __future__ import annotations

from pathlib import Path

from spanlite.agent.counts import AgentCounts
from spanlite.agent.spool.gauges import gauges
from spanlite.agent.spool.spool import Spool
from tests.agent.spool.items import SMALL, item, segments


def _shown(spool: Spool) -> dict[str, float]:
    return {name.removeprefix("spanlite_agent_spool_"): samples[0][1] for name, samples in gauges(spool).items()}


def test_gauges_are_what_lies_on_disk(tmp_path: Path) -> None:
    """Bytes of the files, spans and records that wait, and the time of the oldest one while there is one."""
    spool = Spool(tmp_path, AgentCounts(), SMALL)
    assert "oldest_timestamp_seconds" not in _shown(spool)
    items = [item(number) for number in range(30)]
    for one in items:
        spool.append(one)
    shown = _shown(spool)
    assert shown["bytes"] == sum(path.stat().st_size for path in segments(tmp_path))
    assert (shown["spans"], shown["records"]) == (sum(one.spans for one in items), 30)
    assert (shown["limit_bytes"], shown["degraded"], shown["memory_bytes"], shown["quarantined_files"]) == (
        1 << 20,
        0,
        0,
        0,
    )
    assert shown["oldest_timestamp_seconds"] == 1.0
    for sequence in range(1, 29):
        assert spool.fetch(sequence) is not None
        spool.ack(sequence)
    shown = _shown(spool)
    assert (shown["spans"], shown["records"]) == (items[28].spans + items[29].spans, 2)
    assert 1.0 < shown["oldest_timestamp_seconds"] <= 1.028
    spool.close()
