"""Run a program with its GPU kernels traced: the same process, signals and exit code, as it is by itself.

It sets the environment that makes CUDA load spanlite's collector, and then becomes the program. Programs that this one
starts are traced as well, unless --no-children is given. Whether an agent listens does not matter to the program:
without one, spans are dropped and counted.
SPANLITE_DISABLE=1 switches the collector off.

examples:
  spanlite run -- python serve.py --port 8000
  spanlite run --socket /run/spanlite/agent.sock -- ./train
  spanlite run --budget 0.5 -- python serve.py           # at most half a percent of its time
  spanlite run --budget full -- ./train                  # every single kernel
  spanlite run --duty 20/200 -- python serve.py          # 20 ms in each 200, whatever that costs
  spanlite run --no-stages -- torchrun train.py          # NVTX ranges are left alone
  spanlite run --no-children -- ./train                  # not what it starts, such as compilers
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from spanlite.contract.errors import UsageError
from spanlite.runtime import settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument(
        "--socket", type=Path, metavar="PATH", help="where the agent listens (default /run/spanlite/agent.sock)"
    )
    parser.add_argument(
        "--budget",
        metavar="PERCENT",
        help="of the program's time that tracing may cost; what is not traced is in the weights of what is; `full` "
        "traces everything, whatever it costs (default 1)",
    )
    parser.add_argument("--duty", metavar="ON/PERIOD", help="milliseconds of each period that are traced")
    parser.add_argument("--no-stages", action="store_true", help="take no stages from NVTX ranges")
    parser.add_argument("--no-children", action="store_true", help="trace this process alone, not those that it starts")
    parser.add_argument(
        "--collector", type=Path, metavar="FILE", help="the library, where it is not the one built here"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="the program and its words")


def run(args: argparse.Namespace) -> int:
    """Does not return: the program takes this process over.

    Raises:
        UsageError: no program or one that cannot be started, a flag is off, the collector is not built, or another
            profiler is to be loaded.
    """
    from spanlite.agent.native import environment, find_collector

    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise UsageError("no program is named; write it behind --, as in: spanlite run -- python serve.py")
    inherited = settings.inherited()
    added = environment(find_collector(args.collector), args.socket, inherited)
    if args.no_stages:
        added["SPANLITE_STAGES"] = "0"
    if args.budget is not None:
        added["SPANLITE_BUDGET"] = _budget(args.budget)
    if args.duty is not None:
        added["SPANLITE_DUTY"] = _duty(args.duty)
    inherited.pop("SPANLITE_PID", None)  # of a run that started this one
    if args.no_children:  # the program keeps this process's number; whoever has another leaves it alone
        added["SPANLITE_PID"] = str(os.getpid())
    sys.stdout.flush()
    try:
        os.execvpe(words[0], words, {**inherited, **added})  # noqa: S606 - the program that the user names
    except OSError as error:
        raise UsageError(
            f"{words[0]}: cannot be started ({error.strerror}); see that it is there and on PATH"
        ) from error


def _budget(text: str) -> str:
    if text != "full" and not (re.fullmatch(r"\d{1,3}(\.\d{1,6})?", text) and 0 < float(text) <= 100):
        raise UsageError(f"--budget {text}: write a percentage above 0, such as 0.5, or full")
    return text


def _duty(text: str) -> str:
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if found is None or not 0 < int(found[1]) <= int(found[2]):
        raise UsageError(f"--duty {text}: write milliseconds as ON/PERIOD with 0 < ON <= PERIOD, such as 20/200")
    return text
