"""The jars that pipeline/pom.xml pins, fetched by Maven when they are not there: `python -m tests.stack.jars`."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.stack.process import StackError, require_program

ROOT = Path(__file__).parents[2]
STACK = ROOT / "build/stack"
_POM = ROOT / "pipeline/pom.xml"
_JARS = STACK / "jars"


def jars(part: str) -> list[Path]:
    """The jars of `kafka` (a broker and its tools) or `flink` (connectors for its lib folder); fetched if need be."""
    STACK.mkdir(parents=True, exist_ok=True)
    wanted = hashlib.sha256(_POM.read_bytes()).hexdigest()
    stamp = _JARS / ".installed"
    with (STACK / "jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != wanted:
            _fetch()
            stamp.write_text(wanted)
    return sorted((_JARS / part).glob("*.jar"))


def _fetch() -> None:
    """Fetches them anew: a jar of another version must not stay on the class path."""
    maven = require_program("jars", "mvn", "maven")
    shutil.rmtree(_JARS, ignore_errors=True)
    done = subprocess.run(
        [maven, "--quiet", "--batch-mode", "--file", _POM, "package"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        shutil.rmtree(_JARS, ignore_errors=True)
        said = "".join(f"\n  {line}" for line in done.stdout.splitlines()[-15:])
        raise StackError(f"Maven could not fetch the jars of {_POM.relative_to(ROOT)}; it says:{said}")


if __name__ == "__main__":
    try:
        jars("kafka")
    except StackError as failure:
        sys.exit(f"stack: {failure}")
