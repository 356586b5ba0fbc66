"""How far a replay has come, on disk: written whole after what it tells of has been acknowledged and is durable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.ports import START, Position

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Account:
    """What was acknowledged, in the order of emission, without gaps.

    Attributes:
        next: where the first item stands that is not among it.
        batches, spans, bytes: stored for good.
        lost: spans given up, by reason.
        first_ns, last_ns: first start and last end of the spans, as emitted; 0 without any.
        digest: see `chained`.
        names: sequences given, by producer in hex.
    """

    next: Position = START
    batches: int = 0
    spans: int = 0
    bytes: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    first_ns: int = 0
    last_ns: int = 0
    digest: str = "0" * 64
    names: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A replay's state.

    Attributes:
        settings: what it was called with; another replay does not go on from it.
        offset_ns: by how much times are moved.
        account: what has been acknowledged.
        sink: of the sink, to go on behind that.
        complete: nothing is left to do.
    """

    settings: Mapping[str, object]
    offset_ns: int
    account: Account
    sink: Mapping[str, int]
    complete: bool = False


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replaces the file by a whole new one, durably.

    Raises:
        UsageError: it cannot be written.
    """
    write_json(path, {"format": FORMAT, **asdict(checkpoint)})


def read_checkpoint(path: Path) -> Checkpoint:
    """What `write_checkpoint` wrote.

    Raises:
        UsageError: there is none.
        ReplayError: it is something else, or of another version.
    """
    try:
        facts = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: no checkpoint to go on from ({error.strerror}); start without --resume") from error
    except ValueError as error:
        raise ReplayError(f"{path}: no checkpoint of a replay ({error}); start without --resume") from error
    try:
        if facts.pop("format") != FORMAT:
            raise ReplayError(f"{path}: a checkpoint of another version; start without --resume")
        account = facts.pop("account")
        return Checkpoint(account=Account(**{**account, "next": Position(**account["next"])}), **facts)
    except (AttributeError, KeyError, TypeError) as error:
        raise ReplayError(f"{path}: no checkpoint of a replay ({error}); start without --resume") from error


def write_json(path: Path, facts: object) -> None:
    """A JSON file that is there whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.part")  # one name: what a kill leaves is overwritten by the next run
    try:
        with part.open("w", encoding="utf-8") as stream:
            json.dump(facts, stream, indent=2, ensure_ascii=False)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another file") from error
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
