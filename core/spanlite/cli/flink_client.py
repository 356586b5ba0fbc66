"""Handing jobs to a Flink cluster by Flink's own client, which PyFlink brings."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from spanlite.contract.errors import PipelineError, UsageError
from spanlite.runtime.clock import SystemClock
from spanlite.transport.topics import topic_names

_SUBMITTED = re.compile(r"JobID ([0-9a-f]{32})")
_URI = re.compile(r"[a-z][a-z0-9+.-]*:/")
_OTHER_STATE = (
    "what it was to be resumed from holds state that the job cannot take over: of another job or of the other --mode; "
    "--allow-non-restored gives that state up"
)


def add_arguments(group: Any) -> None:
    """Flags of `submit`."""
    group.add_argument("--job", choices=("metrics", "archive"), default="metrics", help="(default %(default)s)")
    group.add_argument(
        "--flink-python",
        type=Path,
        metavar="PYTHON",
        help="interpreter that has apache-flink and spanlite, here and there",
    )
    group.add_argument("--flink-conf", type=Path, metavar="DIR", help="folder of the cluster's config.yaml")
    group.add_argument("--jobmanager", metavar="HOST:PORT", help="where to submit, if not where --flink-conf says")
    group.add_argument("--parallelism", type=int, help="subtasks of each operator; at most the topic's partitions")
    group.add_argument(
        "--max-parallelism",
        type=int,
        default=1024,
        help="of the job for ever, set at its first start (default %(default)s)",
    )
    group.add_argument("--mode", choices=("thread", "process"), help="of Python in the cluster, if not as configured")
    group.add_argument(
        "--resume",
        metavar="WHERE",
        help="savepoint or checkpoint to go on from, by folder or URI; of a folder that is none, the newest below",
    )
    group.add_argument("--allow-non-restored", action="store_true", help="state of operators that are gone is given up")
    group.add_argument(
        "--retain",
        default="168h",
        help="a silent producer is forgotten after this; at least the retention of the spans (default %(default)s)",
    )
    group.add_argument(
        "--file-spans", type=int, default=1 << 20, metavar="N", help="archive: spans of a producer that make a file"
    )
    group.add_argument("--java-property", action="append", default=[], metavar="N=V", help="of the jobs' Kafka client")
    group.add_argument("--job-name", default="", help="shown by Flink")


def run(args: argparse.Namespace, *, wait: bool) -> int:
    """Submits; with `wait` returns when the job has ended.

    Raises:
        UsageError: a flag is missing or contradicts another.
        PipelineError: Flink refuses the job; its own words are on stderr.
    """
    command = submit_command(args, wait=wait)
    # Both outputs are the client's: the job's id is among the lines of the one, errors among those of either.
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603  # the user's own interpreter
    found = _SUBMITTED.search(done.stdout)
    if done.returncode or found is None:
        said = done.stdout + done.stderr
        sys.stderr.write(said)
        why = _OTHER_STATE if "allowNonRestoredState" in said else "its client says why above"
        raise PipelineError(f"Flink has refused the job (exit code {done.returncode}); {why}")
    print(found[1])
    return 0


def submit_command(args: argparse.Namespace, *, wait: bool) -> list[str]:
    """The client's command line.

    Raises:
        UsageError: as `run`.
    """
    if args.flink_python is None:
        raise UsageError("--flink-python is missing: an interpreter with apache-flink (pip install 'spanlite[flink]')")
    if args.job == "archive" and not args.archive:
        raise UsageError("--archive is missing: the folder or URI that the archive job writes to")
    if args.property or args.security_file:
        raise UsageError(
            "-X and --security-file are librdkafka's, which jobs do not use; their Java client takes --java-property"
        )
    home = _pyflink(args.flink_python)
    variables = [f"FLINK_CONF_DIR={args.flink_conf.absolute()}"] if args.flink_conf else []
    if args.flink_conf and (args.flink_conf.parent / "lib").is_dir():
        variables.append(f"FLINK_LIB_DIR={(args.flink_conf.parent / 'lib').absolute()}")
    words = ["env", *variables, str(home / "bin/flink"), "run"]
    words += [] if wait else ["--detached"]
    words += ["--jobmanager", args.jobmanager] if args.jobmanager else []
    words += ["--parallelism", str(args.parallelism)] if args.parallelism else []
    words += [f"-Dpython.execution-mode={args.mode}"] if args.mode else []
    words += ["--fromSavepoint", _restored(args.resume)] if args.resume else []
    words += ["--allowNonRestoredState"] if args.allow_non_restored else []
    words += ["-pyexec", str(args.flink_python), "-pyclientexec", str(args.flink_python)]
    return [*words, "-py", str(_job_file(args.flink_python, args.job)), *_job_arguments(args)]


def _restored(where: str) -> str:
    """URI of what --resume names; one that is a URI is Flink's to judge: it may lie where only the cluster gets at."""
    return where if _URI.match(where) else newest_checkpoint(Path(where)).as_uri()


def newest_checkpoint(folder: Path) -> Path:
    """The folder itself if it is a savepoint or checkpoint, else the newest whole one below it.

    Raises:
        UsageError: there is none.
    """
    found = [folder] if (folder / "_metadata").is_file() else [path.parent for path in folder.glob("**/_metadata")]
    if not found:
        raise UsageError(f"{folder}: no savepoint or checkpoint there (a folder with _metadata in it)")
    return max(found, key=lambda path: (path / "_metadata").stat().st_mtime_ns).absolute()


def _job_arguments(args: argparse.Namespace) -> list[str]:
    names = topic_names(args.prefix)
    words = ["--bootstrap", args.bootstrap, "--spans", names["spans"], "--group", f"{args.prefix}-{args.job}"]
    words += ["--max-parallelism", str(args.max_parallelism), "--retain", args.retain]
    words += ["--name", args.job_name] if args.job_name else []
    words += ["--bounded"] if args.bounded else []
    for text in args.java_property:
        words += ["--property", text]
    if args.job == "archive":
        words += ["--archive", args.archive, "--buckets", str(args.buckets), "--file-spans", str(args.file_spans)]
        return [*words, "--flush", args.flush]
    words += ["--points", names["points"], "--late", names["late"], "--dead", names["dead"]]
    words += ["--window", args.window, "--lateness", args.lateness, "--idle", args.idle, "--emit", args.emit]
    return [*words, "--top-k", str(args.top_k), "--epoch", str(SystemClock().unix_ns())]


def _pyflink(python: Path) -> Path:
    return Path(_asked(python, "import os, pyflink; print(os.path.dirname(os.path.abspath(pyflink.__file__)))"))


def _job_file(python: Path, job: str) -> Path:
    code = "import importlib.util as u; print(u.find_spec('spanlite.pipeline.jobs').submodule_search_locations[0])"
    return Path(_asked(python, code)) / f"{job}.py"


def _asked(python: Path, code: str) -> str:
    """What another interpreter prints.

    Raises:
        UsageError: it is not there, or lacks a package.
    """
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603  # likewise
    except OSError as error:
        raise UsageError(f"--flink-python {python}: {error.strerror}") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        raise UsageError(f"--flink-python {python} cannot be used ({last[0]}); there: pip install 'spanlite[flink]'")
    return done.stdout.strip()
