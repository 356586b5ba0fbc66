"""The flags of `spanlite replay run --to cuda`, and which others go with it."""

from __future__ import annotations

import argparse

from spanlite.contract.errors import UsageError

_OWN = {"device": 0, "ahead": "100ms"}
_FOREIGN = {
    "checkpoint": ("--checkpoint", "kernels cannot be taken back, so a run cannot be gone on with"),
    "resume": ("--resume", "kernels cannot be taken back, so a run cannot be gone on with"),
    "limit_batches": ("--limit-batches", "take --limit-spans"),
    "output": ("-o", "what is run is kernels; take --manifest FILE for what became of them"),
    "topic": ("--topic", "that belongs to --to kafka"),
    "yes_live": ("--yes-live", "that belongs to --to kafka"),
    "create_topic": ("--create-topic", "that belongs to --to kafka"),
    "realtime": ("--realtime", "a thread of its own launches kernels"),
}


def add_cuda_arguments(group: argparse._ArgumentGroup) -> None:
    """Adds all of them."""
    group.add_argument("--device", type=int, default=_OWN["device"], metavar="N", help="GPU (default %(default)s)")
    group.add_argument(
        "--ahead",
        default=_OWN["ahead"],
        metavar="TIME",
        help="so long before its time a kernel may be queued behind one that runs (default %(default)s)",
    )


def check_cuda(args: argparse.Namespace) -> None:
    """Raises UsageError for flags of other places with `--to cuda`, and for its flags with others."""
    if args.to != "cuda":
        for name, default in _OWN.items():
            if getattr(args, name) != default:
                raise UsageError(f"--{name} belongs to --to cuda")
        return
    for name, (flag, why) in _FOREIGN.items():
        if getattr(args, name):
            raise UsageError(f"{flag} does not go with --to cuda: {why}")
    for flag, wrong, why in (
        ("--ids remap", args.ids != "keep", "kernels have no ids of ours"),
        ("--late", args.late != "catchup", "what a GPU is late with runs when it can"),
        ("--shift offset", args.shift.startswith("offset="), "take now, or at=TIME for when it is to begin"),
        ("--qps-of traces", args.qps_of == "traces", "it counts kernels"),
    ):
        if wrong:
            raise UsageError(f"{flag} does not go with --to cuda: {why}")
    if args.speed == "max" and not args.qps:
        raise UsageError("--to cuda launches kernels when they are due: take --speed 1 for as recorded, or --qps N")
