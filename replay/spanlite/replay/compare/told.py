"""What the manifest of a run tells: all that it takes to know which spans were to come, and to undo what was done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from spanlite.contract.errors import ReplayError, UsageError
from spanlite.replay.manifest import FORMAT
from spanlite.replay.pacing.settings import Limit, Pace, parse_rate, parse_speed
from spanlite.replay.selection import Selection
from spanlite.runtime.durations import parse_duration_ns

_ENDS = ("most_batches", "most_spans")
"""Settings that end a run before its last turn does."""
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Told:
    """A run, as its manifest tells it.

    Attributes:
        run, seed: what its keys follow from.
        remapped: whether sessions and traces are others.
        selection: which spans of the archive.
        order: "arrival" or "start".
        loops: turns.
        offset_ns, period_ns: times of turn k were moved by offset + k * period.
        most_spans: how many it came to, lost ones too, where it was to end early; None where it was not.
        archive: where it read from.
        output: where it wrote to.
        lost: spans that it gave up, by reason.
        pacing: the manifest's own account of the pace.
    """

    run: str
    seed: int
    remapped: bool
    selection: Selection
    order: str
    loops: int
    offset_ns: int
    period_ns: int
    most_spans: int | None
    archive: str
    output: str
    lost: Mapping[str, int]
    pacing: Mapping[str, Any]

    @property
    def kept(self) -> bool:
        """Whether batches went out under the names that they had."""
        return self.selection.everything and not self.remapped and not self.offset_ns

    @property
    def renumbered(self) -> bool:
        """Whether the rows of a batch were numbered on where some between were left out."""
        return self.remapped and not self.selection.everything

    def moved_ns(self, loop: int) -> int:
        """By how much times of a turn were moved."""
        return self.offset_ns + loop * self.period_ns

    @property
    def pace(self) -> Pace | None:
        """When items were to leave; None for a run that went as fast as it could."""
        said = self.pacing
        rate, qps = parse_speed(str(said.get("speed", "max"))), said.get("qps")
        limit = Limit(parse_rate(str(qps)), int(said.get("burst") or 0)) if qps else None
        if rate is None and limit is None:
            return None
        cap, period = (parse_duration_ns(said[name]) if said.get(name) else None for name in ("gap_cap", "period"))
        return Pace(speed=rate, limit=limit, gap_cap_ns=cap, period_ns=period, loops=self.loops)


def read_manifest(path: Path) -> Told:
    """What `spanlite replay run` wrote.

    Raises:
        UsageError: there is no such file.
        ReplayError: it is something else, or of another version.
    """
    try:
        facts = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path}: no manifest ({error.strerror}); name the one of the run with --manifest FILE"
        ) from error
    except ValueError as error:
        raise _none(path, error) from error
    try:
        if facts["format"] != FORMAT:
            raise ReplayError(f"{path}: a manifest of another version; compare with the spanlite that wrote it")
        return _told(facts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _none(path, f"{type(error).__name__}: {error}") from error


def _none(path: Path, why: object) -> ReplayError:
    return ReplayError(f"{path}: no manifest of a replay ({why}); name the one that `spanlite replay run` wrote")


def _told(facts: Mapping[str, Any]) -> Told:
    settings, pacing = facts["settings"], dict(facts["pacing"])
    emitted, selected = facts["emitted"], int(facts["selected"]["spans"])
    lost = {str(reason): int(spans) for reason, spans in emitted["lost"].items()}
    came, loops = int(emitted["spans"]) + sum(lost.values()), int(settings["loops"])
    cut = not loops or any(settings.get(name) for name in _ENDS) or bool(pacing.get("duration"))
    cut = cut or facts["ended"] == "duration"
    if cut:  # its last turns may not have begun
        loops = max(-(-came // max(selected, 1)), 1)
    offset, period = int(facts["offset_ns"]), int(facts["period_ns"] or 0)
    if not _LEAST <= offset <= _MOST or not 0 <= period <= _MOST or loops < 1:
        raise ValueError(f"{loops} turns, moved by {offset} ns and by {period} ns more each")
    return Told(
        run=str(facts["run"]),
        seed=int(facts["seed"]),
        remapped=settings["ids"] == "remap",
        selection=_selection(settings["selection"]),
        order=str(settings["order"]),
        loops=loops,
        offset_ns=offset,
        period_ns=period,
        most_spans=came if cut else None,
        archive=str(facts["archive"]["where"]),
        output=str(facts["output"]),
        lost=lost,
        pacing=pacing,
    )


def _selection(facts: Mapping[str, Any]) -> Selection:
    given = {field.name: facts[field.name] for field in fields(Selection)}
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    plain["traces"] = tuple(bytes.fromhex(trace) for trace in given["traces"])
    return Selection(**plain)
