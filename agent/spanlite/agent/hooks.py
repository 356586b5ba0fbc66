"""Custom metrics of a PyTorch model without a change to it: `watch(model)`; see docs/custom-metrics.md.

Modules are found by the names of their classes. Of rotary position embeddings: `rope.cosine_compute_ms` and
`rope.freq_inv_max`; of FlashAttention: `flash_attn.recompute_count`. Each has the label `layer`, the first number in
the module's name, and `sequence` where the program says which one it works on.

GPU time is what passes between two CUDA events on the stream that is current, and is read when the GPU has passed both:
at a later call of a hook, on the program's own thread, since asking from another would spoil a graph that is being
captured. Nothing is waited for, and nothing raises into the model.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from spanlite.agent.observe import DEFAULT, Observer
from spanlite.agent.torchside import Event, Side, loaded_torch
from spanlite.contract.errors import UsageError
from spanlite.runtime.clock import Clock, SystemClock

log = logging.getLogger(__name__)

ROPE = r"(?i)rotary|rope"
FLASH = r"(?i)flash.*att|att.*flash"
"""Classes by name, as `re.search` finds them: LlamaRotaryEmbedding, FlashAttention, LlamaFlashAttention2, …"""
MOST_PENDING = 1024
"""Pairs of events that wait for the GPU; more are not recorded until it has caught up."""
_LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
_NEVER = object()
_sequence: ContextVar[object] = ContextVar("spanlite.sequence", default=None)


@contextmanager
def sequence(number: object) -> Iterator[None]:
    """Names the sequence that the model works on within: the label `sequence` of what it observes."""
    token = _sequence.set(number)
    try:
        yield
    finally:
        _sequence.reset(token)


class Watch:
    """Hooks on the modules of a model.

    Attributes:
        rope, flash: names of the modules that were found.
    """

    def __init__(self, side: Side, observer: Observer, clock: Clock) -> None:
        self._side, self._observer, self._clock = side, observer, clock
        self._pending: deque[tuple[Event, Event, dict[str, Any], int, int]] = deque()
        self._spare: dict[int, list[tuple[Event, Event]]] = {}
        self._handles: list[Any] = []
        self._faults = 0
        self._ropes: list[_Rope] = []
        self.rope: list[str] = []
        self.flash: list[str] = []

    def collect(self) -> None:
        """Observes what the GPU has finished; hooks do it by themselves, this is for the end of a run."""
        if not self._side.may_observe():
            return
        while self._pending and self._pending[0][1].query():
            begin, end, labels, device, at_ns = self._pending.popleft()
            timing = self._observer.timing("rope.cosine_compute_ms", device=device, **labels)
            timing.observe_ns(round(begin.elapsed_time(end) * 1e6), at_ns)
            self._spare.setdefault(device, []).append((begin, end))
        for rope in self._ropes:
            rope.collect(self._observer)

    def remove(self) -> None:
        """Takes the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def add_rope(self, name: str, module: Any) -> None:
        """Hooks a rotary embedding."""
        rope = _Rope(module, _Labels(self._side, name))
        self._ropes.append(rope)
        self.rope.append(name)

        def before(_module: Any, arguments: Any, keywords: Any) -> None:
            rope.began = None
            if not self._side.may_observe():
                return
            self.collect()
            device = self._side.device_of((*arguments, *keywords.values()))
            if device is None:
                rope.began = self._clock.monotonic_ns()
            elif len(self._pending) < MOST_PENDING:
                spare = self._spare.get(device)
                pair = spare.pop() if spare else (self._side.event(), self._side.event())
                self._side.record(pair[0], device)
                rope.began = (pair, device)

        def after(*_: Any) -> None:
            began, rope.began = rope.began, None
            if not self._side.may_observe():
                return
            labels = rope.labels.now()
            if isinstance(began, int):  # all on the host, which has finished
                self._observer.timing("rope.cosine_compute_ms", **labels).observe_ns(self._clock.monotonic_ns() - began)
            elif began is not None:
                (begin, end), device = began
                self._side.record(end, device)
                self._pending.append((begin, end, labels, device, self._clock.unix_ns()))
            rope.look(self._side, labels)
            rope.collect(self._observer)

        self._handles.append(module.register_forward_pre_hook(self._guarded(before), with_kwargs=True))
        self._handles.append(module.register_forward_hook(self._guarded(after)))

    def add_flash(self, name: str, module: Any) -> None:
        """Hooks an attention module: a forward pass within a backward pass is one done again (checkpointing).

        Its beginning counts: a checkpoint breaks it off once it has what it needs, before any hook that comes after it.
        """
        self.flash.append(name)
        labels = _Labels(self._side, name)

        def before(*_: Any) -> None:
            now = labels.now()
            if self._side.in_backward():
                self._observer.counter("flash_attn.recompute_count", **now).add(1)

        self._handles.append(module.register_forward_pre_hook(self._guarded(before)))

    def _guarded(self, hook: Callable[..., None]) -> Callable[..., None]:
        """The hook, whose faults are the log's and never the model's."""

        def guarded(*arguments: Any) -> None:
            try:
                hook(*arguments)
            except Exception:  # a model must not fail because it is watched
                self._faults += 1
                if self._faults == 1:
                    log.exception("a hook has failed; further faults are not told")

        return guarded


class _Labels:
    """Labels of one module."""

    def __init__(self, side: Side, name: str) -> None:
        self._side = side
        found = _LAYER.search(name)
        self._layer = {"layer": found[1]} if found else {}
        self._last: object = None

    def now(self) -> dict[str, Any]:
        """Those of a call. Backward passes have threads of their own: what is done again there is the last sequence."""
        number = _sequence.get()
        if number is None and self._side.in_backward():
            number = self._last
        self._last = number
        return dict(self._layer) if number is None else {**self._layer, "sequence": number}


class _Rope:
    """One rotary embedding: when its call began, and what its frequencies were when they were last looked at."""

    def __init__(self, module: Any, labels: _Labels) -> None:
        self._module, self.labels = module, labels
        self.began: Any = None
        self._seen: object = None  # held, so that no other tensor gets its address
        self._version = 0
        self._copy: Callable[[], float | None] | None = None
        self._greatest: float | None = None
        self._wanted: dict[str, Any] | None = None
        self._told: object = _NEVER

    def look(self, side: Side, labels: dict[str, Any]) -> None:
        """Begins a copy where the frequencies are others than before; asks for an observation once a sequence."""
        frequencies = getattr(self._module, "inv_freq", None)
        if frequencies is None:
            return
        version, number = side.version_of(frequencies), labels.get("sequence")
        if frequencies is not self._seen or version != self._version:
            self._seen, self._version, self._told = frequencies, version, _NEVER
            self._copy, self._greatest = side.copy_of_greatest(frequencies), None
        if number != self._told:
            self._told, self._wanted = number, labels

    def collect(self, observer: Observer) -> None:
        """Observes the greatest frequency once it is there."""
        if self._copy is not None and (value := self._copy()) is not None:
            self._greatest, self._copy = value, None
        if self._wanted is not None and self._greatest is not None:
            observer.gauge("rope.freq_inv_max", **self._wanted).set(self._greatest)
            self._wanted = None


def watch(
    model: Any,
    *,
    rope: str = ROPE,
    flash: str = FLASH,
    observer: Observer = DEFAULT,
    side: Side | None = None,
    clock: Clock | None = None,
) -> Watch:
    """Hooks the modules of a model whose classes' names fit.

    Args:
        model: a torch.nn.Module.
        rope, flash: patterns, where the names are others.

    Raises:
        UsageError: the program has not imported torch.
    """
    side = side or loaded_torch()
    if side is None:
        raise UsageError("watch() is for PyTorch models, and torch is not imported; import it first")
    made = Watch(side, observer, clock or SystemClock())
    for name, module in model.named_modules():
        kind = type(module).__name__
        if re.search(rope, kind):
            made.add_rope(name, module)
        elif re.search(flash, kind):
            made.add_flash(name, module)
    return made
