"""Play a recording into a running agent, as the traced process would have sent it.

It ends when the agent has taken everything. A recording played again gives the same batches, under the same numbers, so
whoever reads them counts each span once; with --repeat each playing says it is another process.

examples:
  spanlite feed run.bin.xz --socket /run/spanlite/agent.sock
  spanlite feed run.bin.xz --socket a.sock --speed 1
  spanlite feed run.bin.xz --socket a.sock --speed 1 --now
  spanlite feed run.bin.xz --socket a.sock --repeat 100
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from spanlite.contract.errors import RecordingError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="X.bin or X.bin.xz, with X.json beside it")
    parser.add_argument("--socket", type=Path, required=True, metavar="PATH", help="where the agent listens")
    parser.add_argument("--speed", type=float, default=0.0, help="1 = as recorded, 0 = at once (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="play it N times (default %(default)s)")
    parser.add_argument(
        "--now", action="store_true", help="as if it happened now: Kafka drops what is older than its topic keeps"
    )


def run(args: argparse.Namespace) -> int:
    """0 when the agent has taken everything.

    Raises:
        RecordingError: the recording cannot be read, or the agent hung up.
        UsageError: a flag is off, or nobody listens.
    """
    from spanlite.agent.activity import decode
    from spanlite.agent.feeder import feed
    from spanlite.agent.recording import check_counts, read_recording
    from spanlite.runtime.clock import SystemClock

    if not args.speed >= 0:
        raise UsageError(f"--speed must be 0 or more, not {args.speed}")
    if args.repeat < 1:
        raise UsageError(f"--repeat must be 1 or more, not {args.repeat}")
    recording = read_recording(args.recording)
    check_counts(recording, decode(recording.data, recording.layout()))
    clock = SystemClock()
    for turn in range(args.repeat):
        before, after = recording.unix_ns
        if args.now:
            before, after = clock.unix_ns(), clock.unix_ns() + after - before
        # Another clock bracket is another run to the feeder, so its batches have a producer of their own.
        played = replace(recording, unix_ns=(before + turn, after + turn))
        try:
            feed(played, args.socket, clock=clock, speed=args.speed)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise UsageError(f"{args.socket}: nobody listens there ({error.strerror}); start the agent first") from None
        except OSError as error:
            raise RecordingError(f"{args.socket}: the agent hung up ({error}); its log says why") from error
    print(f"{args.recording}: taken by the agent {args.repeat} times", file=sys.stderr)
    return 0
