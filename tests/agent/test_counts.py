"""The agent's counters: sums, labels, threads, and the form that the exporter reads."""

from __future__ import annotations

from threading import Thread

from spanlite.agent.counts import AgentCounts
from spanlite.contract import catalogue


def test_a_labelled_counter_is_the_sum_of_its_labels() -> None:
    """Without a label its value is that of all labels; with one, of that one; unknown ones are 0."""
    counts = AgentCounts()
    counts.add(catalogue.AGENT_SPANS_DROPPED, 3, "sentinel")
    counts.add(catalogue.AGENT_SPANS_DROPPED, 4, "cupti")
    counts.add(catalogue.AGENT_SPANS_DROPPED, 1, "cupti")
    counts.add(catalogue.AGENT_BUFFERS_RECEIVED)
    assert counts.value(catalogue.AGENT_SPANS_DROPPED) == 8
    assert counts.value(catalogue.AGENT_SPANS_DROPPED, "cupti") == 5
    assert counts.value(catalogue.AGENT_SPANS_DROPPED, "other") == 0
    assert counts.value(catalogue.AGENT_SPANS_SENT) == 0
    assert counts.by_label(catalogue.AGENT_SPANS_DROPPED) == {"sentinel": 3, "cupti": 5}
    assert counts.by_label(catalogue.AGENT_BATCHES_SENT) == {}


def test_counters_are_told_by_metric_name_and_label() -> None:
    """Each labelled sample carries the one label of its metric, sorted; reading what was never added adds nothing."""
    counts = AgentCounts()
    counts.add(catalogue.AGENT_SPANS_SENT, 2)
    counts.add(catalogue.AGENT_SPANS_DROPPED, 3, "zero_timestamp")
    counts.add(catalogue.AGENT_SPANS_DROPPED, 4, "cupti")
    counts.value(catalogue.AGENT_FRAMES_LOST)
    assert counts.counters() == {
        "spanlite_agent_spans_sent_total": [({}, 2)],
        "spanlite_agent_spans_dropped_total": [({"reason": "cupti"}, 4), ({"reason": "zero_timestamp"}, 3)],
    }


def test_threads_lose_no_count() -> None:
    """Eight threads adding to the same counters add up."""
    counts = AgentCounts()

    def work() -> None:
        for _ in range(2000):
            counts.add(catalogue.AGENT_SPANS_RECEIVED, 2)
            counts.add(catalogue.AGENT_SPANS_DROPPED, 1, "full")

    threads = [Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts.value(catalogue.AGENT_SPANS_RECEIVED) == 32000
    assert counts.value(catalogue.AGENT_SPANS_DROPPED) == 16000
