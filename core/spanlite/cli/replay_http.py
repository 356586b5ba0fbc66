"""`spanlite replay run --to http`: one request for each archived trace, to a service, when it is due."""

from __future__ import annotations

import argparse
import hashlib
import json
from contextlib import nullcontext
from dataclasses import replace

from spanlite.cli.replay_flags import pacing_of, settings_of
from spanlite.cli.replay_http_flags import calling_of, expected_of, headers_of, template_of
from spanlite.cli.replay_http_said import (
    HttpLine,
    HttpPlan,
    close_http,
    estimate,
    http_manifest,
    package_version,
    say_estimate,
)
from spanlite.cli.stopping import Stopping
from spanlite.contract.errors import UsageError
from spanlite.replay.checkpoint import write_json
from spanlite.replay.http.client import Client
from spanlite.replay.http.outcomes import Outcomes
from spanlite.replay.http.requests import Maker, Template
from spanlite.replay.http.results import Results
from spanlite.replay.http.run import Watch, conclude, due_requests, run_requests
from spanlite.replay.http.traces import read_traces
from spanlite.replay.ports import Archive
from spanlite.replay.shift import check_offset, offset_ns
from spanlite.runtime.clock import Clock


def run_http(args: argparse.Namespace, archive: Archive, clock: Clock) -> int:
    """0 when every request ended as expected, 3 when some failed or were lost, 130 when it was stopped.

    Raises:
        SpanliteError: what is wrong with the call or the archive; nobody was there; --late abort.
    """
    headers = headers_of(args, agent=f"spanlite/{package_version()}")
    template, calling, expected = template_of(args, headers), calling_of(args), expected_of(args.expect)
    plan = _plan(args, archive, clock, template)
    if args.dry_run:
        facts = estimate(plan)
        print(json.dumps(facts, indent=2)) if args.json else say_estimate(facts)
        return 0
    results: Results | None = None
    outcomes = Outcomes(expected)
    client = Client(calling, outcomes, clock)
    if args.results:
        results = Results(args.results, unix_offset_ns=clock.unix_ns() - clock.monotonic_ns())
        outcomes.keep = results.write
    with Stopping() as stopping, results or nullcontext():
        line = HttpLine(plan, client, quiet=args.quiet)
        watch = Watch(lambda: stopping.told, line.paced if line.shown else None, line.draining)
        with line, client:
            begin_ns = clock.monotonic_ns()
            due = due_requests(plan.maker, plan.pacing, loops=plan.settings.loops, by_spans=plan.by_spans)
            summary = run_requests(plan.maker, client, plan.pacing, due, watch=watch)
    if client.broken is not None:
        raise client.broken
    took_ns = clock.monotonic_ns() - begin_ns
    failed = conclude(summary, outcomes, url=plan.url, keep_going=args.keep_going)
    facts = http_manifest(args, plan, summary, outcomes, client) | {"took_s": took_ns / 1e9}
    if args.manifest:
        write_json(args.manifest, facts)
    if args.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    if failed is not None:
        raise failed
    return close_http(args, plan, facts)


def _plan(args: argparse.Namespace, archive: Archive, clock: Clock, template: Template) -> HttpPlan:
    settings, pacing = settings_of(args), pacing_of(args, clock)
    if pacing is None or (pacing.pace.speed is None and pacing.pace.limit is None):
        raise UsageError("--to http sends when requests are due: take --speed 1 for as recorded, or --qps N")
    pacing = replace(pacing, pace=replace(pacing.pace, most_items=args.limit_requests or None))
    traces = read_traces(archive, settings.selection, template.asked)
    said = json.dumps([settings.facts(), traces.digest], sort_keys=True)
    length = int(traces.start_ns[-1] - traces.start_ns[0])
    if settings.loops != 1 and 0 < settings.period_ns <= length:
        raise UsageError(f"--period {args.period}: a turn is {length} ns long; write more than that")
    run = settings.run or hashlib.blake2b(said.encode(), digest_size=6).hexdigest()
    first, last = int(traces.start_ns[0]), int((traces.start_ns + traces.duration_ns).max())
    offset = offset_ns(settings.shift, first_ns=first, now_ns=clock.unix_ns())
    check_offset(offset, first_ns=first, last_ns=last)
    maker = Maker(traces, settings, template, run=run, offset_ns=offset)
    return HttpPlan(archive, settings, pacing, template, maker, run, offset, by_spans=args.qps_of == "spans")
