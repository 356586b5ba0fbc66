"""What agent/hooks.py asks of PyTorch, as a small protocol: torch behind it, or a stand-in in tests.

torch is only imported where the program has imported it. Nothing here waits for a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol


class Event(Protocol):
    """A CUDA event with timing."""

    def query(self) -> bool: ...

    def elapsed_time(self, end: Any, /) -> float: ...


class Side(Protocol):
    """PyTorch, as far as hooks need it."""

    def may_observe(self) -> bool:
        """Whether a hook may do anything: not while a graph is captured or code compiled."""

    def in_backward(self) -> bool:
        """Whether this thread is inside an autograd backward pass."""

    def device_of(self, tensors: Any) -> int | None:
        """Ordinal of the GPU of the first tensor among some arguments; None where there is none on a GPU."""

    def event(self) -> Event:
        """A new event, which becomes that of the device on which it is recorded first."""

    def record(self, event: Any, device: int) -> None:
        """Has a device's current stream pass an event."""

    def version_of(self, tensor: Any) -> int:
        """Rises when the tensor is changed in place."""

    def copy_of_greatest(self, tensor: Any) -> Callable[[], float | None]:
        """Begins to copy a tensor's greatest value to the host; what it gives says it, None while it is not there."""


class Torch:
    """The real one."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def may_observe(self) -> bool:
        torch = self._torch
        compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
        if compiling is not None and compiling():
            return False
        return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())

    def in_backward(self) -> bool:
        return bool(self._torch._C._current_graph_task_id() != -1)  # noqa: SLF001  # torch's own module tracker asks it

    def device_of(self, tensors: Any) -> int | None:
        for each in _flat(tensors):
            if isinstance(each, self._torch.Tensor):
                return int(each.get_device()) if each.is_cuda else None
        return None

    def event(self) -> Event:
        made: Event = self._torch.cuda.Event(enable_timing=True)
        return made

    def record(self, event: Any, device: int) -> None:
        event.record(self._torch.cuda.current_stream(device))

    def version_of(self, tensor: Any) -> int:
        return 0 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001  # torch has no other word

    def copy_of_greatest(self, tensor: Any) -> Callable[[], float | None]:
        with self._torch.no_grad():
            greatest = tensor.detach().max()
            if not greatest.is_cuda:
                value = float(greatest)
                return lambda: value
            host = self._torch.empty((), dtype=greatest.dtype, pin_memory=True)
            host.copy_(greatest, non_blocking=True)
            done = self._torch.cuda.Event()
            done.record(self._torch.cuda.current_stream(tensor.device))
        return lambda: float(host) if done.query() else None


def loaded_torch() -> Side | None:
    """torch, if the program uses it."""
    torch = sys.modules.get("torch")
    return None if torch is None else Torch(torch)


def _flat(tensors: Any) -> list[Any]:
    """Arguments, those in a tuple, list or dictionary among them included."""
    if isinstance(tensors, dict):
        tensors = list(tensors.values())
    if not isinstance(tensors, (tuple, list)):
        return [tensors]
    return [inner for each in tensors for inner in (each if isinstance(each, (tuple, list)) else (each,))]
