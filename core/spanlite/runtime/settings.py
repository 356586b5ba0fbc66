"""Defaults of flags from the environment and from a file: flag > environment > file > built-in.

The flag --window of `spanlite ingest` is also the variable SPANLITE_INGEST_WINDOW, and the key `window` under
`[ingest]` of the TOML file that --config or SPANLITE_CONFIG names. A flag that may be given several times is one text
with commas there; in the file a list will do. It is the only module that reads the environment.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from spanlite.contract.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "SPANLITE_"
CONFIG = "SPANLITE_CONFIG"
COLLECTOR = (
    *("DISABLE", "SOCKET", "CUPTI", "STAGES", "NVTX_NEXT", "DUTY", "GIVE_WAY", "RESUME_MS"),
    *("BUFFER_KIB", "POOL_KIB", "FLUSH_MS", "HUNG_MS", "PID", "BUDGET", "SETTLE_MS", "NO_RECORDS_MS"),
)
"""Variables of the collector (docs/collector.md); programs that it traces may be commands of ours."""
OTHERS = {CONFIG, "SPANLITE_RECORDINGS", *(PREFIX + name for name in COLLECTOR)}
"""Variables that are no flag of a command: the file, the benchmarks' recordings, the collector's."""
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def defaults(
    command: str,
    flags: Mapping[str, bool],
    *,
    config: Path | None = None,
    environment: Mapping[str, str] = os.environ,  # noqa: TID251  # the place that reads it
    commands: Collection[str] = (),
) -> dict[str, Any]:
    """Defaults of a command's flags.

    Args:
        command: its name; a key of the file and part of the variables.
        flags: name of each flag with underscores → whether it is a switch.
        config: the file; SPANLITE_CONFIG where it is None.
        environment: variables.
        commands: all commands, to tell another one's variables from a slip of the pen.

    Raises:
        UsageError: the file cannot be read, or a key or variable is not known (with the nearest name).
    """
    found: dict[str, Any] = {}
    named = config or (Path(environment[CONFIG]) if environment.get(CONFIG) else None)
    if named is not None:
        found.update(_from_file(command, flags, named))
    found.update(_from_environment(command, flags, environment, commands))
    return found


def inherited(environment: Mapping[str, str] = os.environ) -> dict[str, str]:  # noqa: TID251  # the place that reads it
    """All variables, for a program that is started in our place."""
    return dict(environment)


def export(values: Mapping[str, str | None]) -> None:
    """Changes this process's variables, for libraries that it loads and programs that it starts; None removes one."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)  # noqa: TID251  # the place that reads it
        else:
            os.environ[name] = value  # noqa: TID251  # likewise


def _from_file(command: str, flags: Mapping[str, bool], path: Path) -> dict[str, Any]:
    try:
        loaded = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a settings file that can be read") from error
    except ValueError as error:
        raise UsageError(f"{path}: no valid TOML ({error})") from error
    section = loaded.get(command, {})
    if not isinstance(section, dict):
        raise UsageError(f"{path}: [{command}] must be a table")
    found: dict[str, Any] = {}
    for key, value in section.items():
        name = key.replace("-", "_")
        if name not in flags:
            raise UsageError(f"{path}: [{command}] has no key {key!r}{_nearest(name, flags)}")
        # argparse turns texts into the flag's type, so that a file's number and a flag's are read alike.
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        found[name] = _switch(f"{path}: {key}", text.lower()) if flags[name] else text
    return found


def _from_environment(
    command: str, flags: Mapping[str, bool], environment: Mapping[str, str], commands: Collection[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    mine = f"{PREFIX}{command.upper()}_"
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable in OTHERS:
            continue
        name = variable.removeprefix(mine).lower()
        if variable.startswith(mine) and name in flags:
            found[name] = _switch(variable, value.lower()) if flags[name] else value
        elif variable.startswith(mine) or not any(variable.startswith(f"{PREFIX}{c.upper()}_") for c in commands):
            known = [f"{mine}{flag.upper()}" for flag in flags]
            raise UsageError(f"the environment variable {variable} is not known{_nearest(variable, known)}")
    return found


def _switch(where: str, value: str) -> bool:
    if value not in _TRUE | _FALSE:
        raise UsageError(f"{where} is {value!r}; it must be true or false")
    return value in _TRUE


def _nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
