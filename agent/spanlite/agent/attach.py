"""Tracing switched on by the program itself: `from spanlite.agent import attach; attach()`.

The same as `spanlite run`, from within: for programs whose command line is not one's own. It costs one import of the
standard library's, and what cannot be done is a state and a sentence, never an exception: a program must not fail
because nobody watches it. The exception are arguments that cannot be meant.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

from spanlite.agent.native import environment, find_collector
from spanlite.contract.errors import UsageError
from spanlite.runtime import settings

log = logging.getLogger(__name__)


class Collector(Protocol):
    """What both collectors can do; what pushes and pops return is for tests."""

    def state(self) -> str: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def push(self, name: str) -> object: ...

    def pop(self) -> object: ...


class Nothing:
    """In a collector's place where none may be."""

    def __init__(self, state: str) -> None:
        self._state = state

    def state(self) -> str:
        return self._state

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def push(self, name: str) -> object: ...

    def pop(self) -> object: ...


class Attachment:
    """Tracing of this process.

    Attributes:
        kind: "native", "python" or "none".
        why: why nothing is traced, as a sentence; empty where something is, or will be when CUDA is used.
    """

    def __init__(self, kind: Literal["native", "python", "none"], collector: Collector, why: str = "") -> None:
        self.kind = kind
        self.why = why
        self._collector = collector

    @property
    def state(self) -> str:
        """As in docs/collector.md, e.g. waiting, active; of attach() itself: disabled, other_injection, forked."""
        return self._collector.state()

    def pause(self) -> None:
        """Leaves CUPTI to somebody else, until `resume`."""
        self._collector.pause()

    def resume(self) -> None:
        """Collects again."""
        self._collector.resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Around a tool that wants CUPTI for itself and that is not noticed by itself."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def push(self, name: str) -> None:
        """Opens a range of this thread, for whoever cannot use `range`."""
        self._collector.push(name)

    def pop(self) -> None:
        """Closes the innermost one."""
        self._collector.pop()

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """A stage: kernels that this thread launches within are given its name. They nest."""
        self.push(name)
        try:
            yield
        finally:
            self.pop()

    def __repr__(self) -> str:
        return f"<spanlite {self.kind}: {self.state}{f' ({self.why})' if self.why else ''}>"


_lock = threading.Lock()
_attached: tuple[int, Attachment] | None = None
"""Process id, and what attach() gave it."""


def attach(
    *,
    socket: str | os.PathLike[str] | None = None,
    collector: str | os.PathLike[str] | None = None,
    native: Literal["auto"] | bool = "auto",
    stages: bool | None = None,
    duty: str | None = None,
    budget: str | float | None = None,
    jit: bool = True,
) -> Attachment:
    """Begins to trace the kernels of this process; a second call gives what the first gave.

    To be called in the process that uses the GPU, as early as one likes, before or after `import torch`: NVTX ranges
    count from then on if none was marked before. Arguments go before the variables of docs/collector.md.

    Args:
        socket: where the agent listens.
        collector: the library, where it is not the one that was built here.
        native: whether to use the library; "auto": where it was built, else the twin in Python.
        stages: whether NVTX ranges become stages.
        duty: "ON/PERIOD", milliseconds of each period that are traced.
        budget: percent of the program's time that tracing may cost, or "full": all is traced, whatever it costs.
        jit: whether Triton and torch.compile are to tell where their kernels come from; see agent/jit.py.

    Raises:
        UsageError: `collector`, or the library that `native=True` asks for, is not there.
    """
    global _attached  # noqa: PLW0603  # a process has one CUPTI
    with _lock:
        if _attached is not None:
            pid, attachment = _attached
            if pid == os.getpid():
                return attachment
            return _refused("forked", "the parent of this process is traced: CUDA does not work after a fork")
        said = {
            "SPANLITE_SOCKET": None if socket is None else os.fspath(socket),
            "SPANLITE_STAGES": None if stages is None else str(int(stages)),
            "SPANLITE_DUTY": duty,
            "SPANLITE_BUDGET": None if budget is None else str(budget),
        }
        chosen = {name: value for name, value in said.items() if value is not None}
        attachment = _begin(chosen, collector, native)
        _attached = os.getpid(), attachment
        if jit and attachment.kind != "none":
            from spanlite.agent.jit import install

            install({**settings.inherited(), **chosen})
        return attachment


def _begin(
    said: Mapping[str, str], collector: str | os.PathLike[str] | None, native: Literal["auto"] | bool
) -> Attachment:
    inherited = settings.inherited()
    library = _library(collector, native)
    if inherited.get("SPANLITE_DISABLE") == "1":
        return _refused("disabled", "SPANLITE_DISABLE=1")
    try:
        injected = environment(library or Path(), None, inherited)
    except UsageError as error:
        return _refused("other_injection", str(error))
    variables = {**inherited, **said}
    variables.pop("SPANLITE_PID", None)  # of the program that started this one
    if library is None:
        return _python(variables)
    ranges = {} if variables.get("SPANLITE_STAGES") == "0" else injected
    # Not CUDA's variable: programs that this one starts were not asked for.
    settings.export({**said, **{k: v for k, v in ranges.items() if k != "CUDA_INJECTION64_PATH"}, "SPANLITE_PID": None})
    return _native(library, variables)


def _library(collector: str | os.PathLike[str] | None, native: Literal["auto"] | bool) -> Path | None:
    """The library to load; None for the twin."""
    if native is False:
        return None
    try:
        return find_collector(None if collector is None else Path(collector))
    except UsageError:
        if native is True or collector is not None:
            raise
        return None


def _native(path: Path, variables: Mapping[str, str]) -> Attachment:
    from spanlite.agent.collector.finding import packaged_cupti
    from spanlite.agent.collector.library import NativeCollector, cupti_is_loaded, load

    try:
        loaded = NativeCollector(path)
    except (OSError, AttributeError) as error:  # of another machine, or no collector
        return _refused("not_loadable", f"{path} cannot be loaded here: {error}")
    if not variables.get("SPANLITE_CUPTI") and not cupti_is_loaded():
        packaged = packaged_cupti(sys.path)
        if packaged is not None:
            load(packaged)  # where it cannot be, the collector searches further
    load(Path("libcuda.so.1"))  # which makes stamps; who comes before the framework would look for it in vain
    loaded.start()
    return Attachment("native", loaded, _why(loaded.state()))


def _python(variables: Mapping[str, str]) -> Attachment:
    from spanlite.agent.collector.options import Options
    from spanlite.agent.collector.twin import Twin
    from spanlite.runtime.clock import SystemClock

    asked = [name for name in ("SPANLITE_DUTY", "SPANLITE_BUDGET") if variables.get(name, "full") != "full"]
    if asked:
        log.warning("spanlite's collector in Python traces everything: %s means nothing to it", " or ".join(asked))
    twin = Twin(Options.of(variables), SystemClock())
    twin.start()
    return Attachment("python", twin, _why(twin.state()))


_REASONS = {
    "disabled": "SPANLITE_DISABLE=1 was set when the library was loaded",
    "no_cupti": "no libcupti was found: install CUDA's, or name one by SPANLITE_CUPTI",
    "unknown_cupti_version": "the agent does not know how this version of CUPTI lays out its records",
    "subscriber_conflict": "another tool has CUPTI; it is asked for again every ten seconds",
    "forked": "the parent of this process is traced: CUDA does not work after a fork",
}


def _why(state: str) -> str:
    if state.startswith("cupti_error_"):
        return f"CUPTI refused with result {state.removeprefix('cupti_error_')}"
    return _REASONS.get(state, "")


def _refused(state: str, why: str) -> Attachment:
    log.warning("spanlite does not trace this process: %s", why)
    return Attachment("none", Nothing(state), why)
