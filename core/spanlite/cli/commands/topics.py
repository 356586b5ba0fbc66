"""`spanlite topics`: makes the Kafka topics of spanlite with the right settings, lists them, checks them."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field

from spanlite.cli.kafka_flags import add_kafka_arguments, kafka_settings
from spanlite.contract.errors import UsageError
from spanlite.transport.kafka_admin import KafkaAdmin
from spanlite.transport.topics import PARTITIONS, PREFIX, Difference, Found, Topic, differences, topics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `spanlite topics`."""
    parser.add_argument("action", choices=("create", "ls", "check"), help="what to do")
    add_kafka_arguments(parser)
    parser.add_argument(
        "--partitions",
        type=_count,
        default=PARTITIONS,
        metavar="N",
        help="of the topics that carry spans and points (default %(default)s)",
    )
    parser.add_argument(
        "--replication", type=_count, default=1, metavar="N", help="copies of each partition (default %(default)s)"
    )
    parser.add_argument("--prefix", default=PREFIX, help="first word of the topics' names (default %(default)s)")
    parser.add_argument(
        "--alter", action="store_true", help="create: also correct topics that are there; never shrinks"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Runs the command.

    Returns:
        0; for check, 1 when a topic is missing or not as it should be.

    Raises:
        UsageError: a flag that the action does not know, or settings that librdkafka refuses.
        TransportError: no broker answers, or it refuses.
    """
    if args.alter and args.action != "create":
        raise UsageError("--alter belongs to `spanlite topics create`")
    wanted = topics(prefix=args.prefix, partitions=args.partitions, replication=args.replication)
    admin = KafkaAdmin(kafka_settings(args, client_id="spanlite-topics"))
    found = admin.found(topic.name for topic in wanted)
    states = [_state(topic, found.get(topic.name)) for topic in wanted]
    if args.action == "create":
        for topic, state in zip(wanted, states, strict=True):
            _create(admin, topic, state, alter=args.alter)
    _print(states, as_json=args.json)
    return 1 if args.action == "check" and any(state.state in ("missing", "differs") for state in states) else 0


@dataclass
class _State:
    """What a topic is, and what was done about it."""

    topic: str
    meaning: str
    state: str
    """`missing`, `ok`, `differs`, `created` or `altered`."""
    partitions: int = 0
    replication: int = 0
    config: dict[str, str] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)


def _state(topic: Topic, found: Found | None) -> _State:
    if found is None:
        return _State(topic.name, topic.meaning, "missing")
    off = list(differences(topic, found))
    config = {name: found.config.get(name, "") for name in topic.config}
    state = "differs" if off else "ok"
    return _State(topic.name, topic.meaning, state, found.partitions, found.replication, config, off)


def _create(admin: KafkaAdmin, topic: Topic, state: _State, *, alter: bool) -> None:
    """Makes the topic or, where that is wanted, corrects it; `state` says afterwards what is so."""
    if state.state == "missing":
        admin.create(topic)
        state.state, state.partitions, state.replication = "created", topic.partitions, topic.replication
        state.config = dict(topic.config)
    elif alter:
        corrected = [one for one in state.differences if not one.obstacle]
        for one in corrected:
            admin.alter(one)
            if one.setting == "partitions":
                state.partitions = int(one.wanted)
            else:
                state.config[one.setting] = one.wanted
        state.differences = [one for one in state.differences if one.obstacle]
        if corrected and not state.differences:
            state.state = "altered"


def _print(states: list[_State], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(state) for state in states], indent=2))
        return
    width = max(len(state.topic) for state in states)
    for state in states:
        shape = f"{state.partitions} × {state.replication}" if state.partitions else "-"
        print(f"{state.topic:<{width}}  {state.state:<8}  {shape:>6}  {_kept(state.config):<16}  {state.meaning}")
        for one in state.differences:
            how = one.obstacle or "`spanlite topics create --alter` corrects it"
            print(f"  {one.setting} is {one.actual or 'not set'}, should be {one.wanted}: {how}")


def _kept(config: dict[str, str]) -> str:
    """How long values are kept, in words."""
    if not config:
        return ""
    if "compact" in config["cleanup.policy"]:
        return "newest per key"
    days = int(config["retention.ms"]) / 86_400_000
    return "for ever" if days < 0 else f"{days:g} days"


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value
