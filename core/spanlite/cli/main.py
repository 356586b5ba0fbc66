"""The `spanlite` command: finds the chosen command, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol, cast

from spanlite.contract.errors import SpanliteError, UsageError
from spanlite.runtime import settings


class Command(Protocol):
    """A module of spanlite.cli.commands."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Entry(NamedTuple):
    """A line of the command table; the module is imported only when the command is chosen."""

    module: str
    extra: str
    help: str


COMMANDS = {
    "demo": Entry("demo", "demo", "replay a recorded H200 inference run through agent, pipeline, exporter and archive"),
    "ingest": Entry("ingest", "demo", "turn CUPTI recordings or kernel tables into metric points and an archive"),
    "occupancy": Entry("occupancy", "agent", "theoretical occupancy of a launch, or compare with Nsight Compute"),
    "cat": Entry("cat", "agent", "print the spans of a recording or of batch files as JSON lines"),
    "archive": Entry("archive", "pipeline", "list, verify or compact an archive"),
    "summary": Entry("summary", "pipeline", "time per kernel of an archive, as CSV"),
    "replay": Entry("replay", "replay,pipeline,kafka,http", "emit an archive again: file, Kafka, HTTP; compare"),
    "backtest": Entry(
        "backtest", "replay,pipeline,kafka", "try windows, rules and code on an archive; compare points and alerts"
    ),
    "run": Entry("run", "agent", "run a program with its GPU kernels traced"),
    "doctor": Entry("doctor", "agent", "tell what this node or a program can do with spanlite, and what to mend"),
    "agent": Entry("agent", "agent,kafka,exporters", "take spans from traced processes and send them to Kafka"),
    "feed": Entry("feed", "agent", "play a recording into a running agent"),
    "exporter": Entry("exporter", "exporters,kafka", "serve the points of a Kafka topic to Prometheus"),
    "pipeline": Entry(
        "pipeline", "pipeline,kafka,exporters", "run the pipeline over Kafka, submit its jobs to Flink, size a fleet"
    ),
    "topics": Entry("topics", "kafka", "make, list or check the Kafka topics of spanlite"),
}

EXAMPLES = """examples:
  spanlite demo
  spanlite ingest run.bin.xz --archive traces/ --points points.jsonl --window 10s
  spanlite occupancy --cc 9.0 --block 256 --registers 56 --dynamic-shared 24576
  spanlite summary traces/
"""


def main(argv: list[str] | None = None) -> int:
    """Exit codes: 0 ok, 1 failed, 2 usage, 3 done with losses, 130 interrupted."""
    words = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character shows another
    try:
        return _run(words)
    except SpanliteError as error:
        return _failed(error, error.exit_code)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    except BrokenPipeError:  # the reader of a pipe has left: not an error of ours
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        return _failed(f"{error}; correct that and run it again", 1)


def _run(words: list[str]) -> int:
    parser = _parser()
    chosen = next((word for word in words if word in COMMANDS), None)
    if chosen is None:
        parser.parse_args(words)
        parser.print_help()
        return 0
    entry = COMMANDS[chosen]
    try:
        module = cast(Command, importlib.import_module(f"spanlite.cli.commands.{entry.module}"))
        args = _parser(chosen, module, config=_config(words)).parse_args(words)
        _configure_logging(args.verbose)
        code = module.run(args)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "spanlite":
            raise
        raise UsageError(f"{chosen} needs {error.name}: pip install 'spanlite[{entry.extra}]'") from error
    sys.stdout.flush()  # here, where a failure can still be told
    return code


def _failed(why: object, code: int) -> int:
    """Says it in one line, whatever line ends a file's name or a library's message may hold."""
    print(f"spanlite: {' '.join(str(why).splitlines())}", file=sys.stderr)
    return code


def _discard_output() -> None:
    """What is still buffered has nowhere to go; the interpreter would fail over it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """A parser that leaves it to `main` to say what is wrong, in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _config(words: list[str]) -> Path | None:
    """The settings file, which must be known before the flags that it gives defaults to."""
    parser = _Parser(prog="spanlite", add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    known, _ = parser.parse_known_args(words)
    config: Path | None = known.config
    return config


def _parser(
    chosen: str | None = None, module: Command | None = None, *, config: Path | None = None
) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="spanlite",
        description="Continuous GPU kernel telemetry.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"spanlite {_version()}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of defaults; also SPANLITE_CONFIG")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more on stderr; twice for debugging")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, entry in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=entry.help,
            description=module.__doc__ if name == chosen and module else entry.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == chosen and module:
            module.add_arguments(command)
            _set_defaults(command, name, config)
    return parser


def _set_defaults(command: argparse.ArgumentParser, name: str, config: Path | None) -> None:
    """Defaults from the environment and the file; a command's actions, where it has some, share its section."""
    leaves = [leaf for action in _actions(command) for leaf in _leaves(action)] or [command]
    flags: dict[str, bool] = {}
    for leaf in leaves:
        flags.update(_flags(leaf))
    found = settings.defaults(name, flags, config=config, commands=COMMANDS)
    for leaf in leaves:
        for action in _actions(leaf):
            if action.dest in found and action.option_strings:
                action.required = False
                action.default = found[action.dest]


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  # argparse has no public way to list them


def _leaves(action: argparse.Action) -> list[argparse.ArgumentParser]:
    choices = action.choices if isinstance(action, argparse._SubParsersAction) else {}  # noqa: SLF001  # likewise
    return list(choices.values())


def _flags(command: argparse.ArgumentParser) -> dict[str, bool]:
    """Names of the optional arguments, and which of them are switches."""
    return {a.dest: a.nargs == 0 for a in _actions(command) if a.option_strings and a.dest != "help"}


def _version() -> str:
    try:
        return version("spanlite")
    except PackageNotFoundError:
        return "0+unknown"


def _configure_logging(verbose: int) -> None:
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
