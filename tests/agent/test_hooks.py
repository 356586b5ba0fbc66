"""Hooks on stand-ins for modules and for torch: what is observed of which module, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spanlite.agent import hooks
from spanlite.agent.frames import OBSERVATION
from spanlite.agent.hooks import Watch, watch
from spanlite.agent.observe import Observer
from spanlite.agent.recorder import MOST_BYTES, Recorder
from spanlite.contract.columns import Kind
from spanlite.contract.errors import UsageError
from spanlite.runtime.clock import ManualClock


class Handle:
    """What register_… gives."""

    def __init__(self, hooked: list[Any], hook: Any) -> None:
        self._hooked, self._hook = hooked, hook

    def remove(self) -> None:
        self._hooked.remove(self._hook)


class Module:
    """torch.nn.Module, as far as hooks see it."""

    def __init__(self, **children: Module) -> None:
        self._children = children
        self.before: list[Any] = []
        self.after: list[Any] = []

    def named_modules(self, prefix: str = "") -> list[tuple[str, Module]]:
        found = [(prefix, self)]
        for name, child in self._children.items():
            found += child.named_modules(f"{prefix}.{name}" if prefix else name)
        return found

    def register_forward_pre_hook(self, hook: Any, *, with_kwargs: bool = False) -> Handle:
        called = hook if with_kwargs else lambda module, arguments, _keywords: hook(module, arguments)
        self.before.append(called)
        return Handle(self.before, called)

    def register_forward_hook(self, hook: Any) -> Handle:
        self.after.append(hook)
        return Handle(self.after, hook)

    def __call__(self, *arguments: Any, work: Callable[[], None] = lambda: None) -> None:
        for hook in self.before:
            hook(self, arguments, {})
        work()
        for hook in self.after:
            hook(self, arguments, None)


class LlamaRotaryEmbedding(Module):
    """Has frequencies."""

    inv_freq: Frequencies


class FlashSelfAttention(Module):
    """Found by its name."""


class Frequencies:
    """A buffer with torch's counter of changes."""

    def __init__(self, greatest: float) -> None:
        self.greatest, self.version = greatest, 0


class Event:
    """Passed when the GPU's time has come to it."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self.at_ms = gpu, float("inf")

    def query(self) -> bool:
        assert not self._gpu.capturing
        return self._gpu.done_ms >= self.at_ms

    def elapsed_time(self, end: Event) -> float:
        assert end.query()
        return end.at_ms - self.at_ms


class Gpu:
    """torch and a GPU whose work is queued at `now_ms` and done up to `done_ms`."""

    def __init__(self) -> None:
        self.now_ms = self.done_ms = 0.0
        self.capturing = self.backward = self.on_gpu = False
        self.copies = self.events = 0

    def may_observe(self) -> bool:
        return not self.capturing

    def in_backward(self) -> bool:
        return self.backward

    def device_of(self, tensors: Any) -> int | None:
        return 1 if self.on_gpu and tensors else None

    def event(self) -> Event:
        self.events += 1
        return Event(self)

    def record(self, event: Event, device: int) -> None:
        assert device == 1
        assert not self.capturing
        event.at_ms = self.now_ms

    def version_of(self, tensor: Frequencies) -> int:
        return tensor.version

    def copy_of_greatest(self, tensor: Frequencies) -> Callable[[], float | None]:
        self.copies += 1
        at_ms, value = self.now_ms, tensor.greatest
        return lambda: value if self.done_ms >= at_ms else None


class Silent(Recorder):
    """Keeps what is observed."""

    def make_room(self) -> bool:
        self.room = MOST_BYTES
        return True

    def told(self) -> list[tuple[str, str, float, int]]:
        """Kind, series, value and device of each record."""
        found = []
        for name, _, value, kind, device in np.frombuffer(bytes(self.buffer), dtype=OBSERVATION).tolist():
            number = float(np.int64(value).view(np.float64)) if kind == Kind.GAUGE else value
            found.append((Kind(kind).name.lower(), self._texts[name - 1].decode(), number, device))
        del self.buffer[:]
        return found


class Setting:
    """A model of two layers, watched."""

    def __init__(self) -> None:
        self.gpu, self.clock, self.recorder = Gpu(), ManualClock(10**18), Silent()
        self.rope, self.flash = LlamaRotaryEmbedding(), FlashSelfAttention()
        self.rope.inv_freq = Frequencies(1.0)
        layer = Module(rotary_emb=self.rope, attn=self.flash, mlp=Module())
        self.model = Module(layers=Module(**{"0": Module(), "11": layer}))
        self.watch = watch(self.model, observer=Observer(self.recorder), side=self.gpu, clock=self.clock)

    def run_on_gpu(self, ms: float) -> None:
        """The rotary embedding's work, queued."""

        def work() -> None:
            self.gpu.now_ms += ms

        self.rope("x", work=work)


@pytest.fixture
def setting() -> Setting:
    """A watched model."""
    return Setting()


def test_modules_are_found_by_their_classes(setting: Setting) -> None:
    """Names say the layer; other modules have no hooks; patterns can be others; hooks can be taken off."""
    assert (setting.watch.rope, setting.watch.flash) == (["layers.11.rotary_emb"], ["layers.11.attn"])
    assert sum(len(m.before) + len(m.after) for _, m in setting.model.named_modules()) == 3
    setting.watch.remove()
    assert sum(len(m.before) + len(m.after) for _, m in setting.model.named_modules()) == 0
    other = watch(setting.model, rope="^nothing$", flash="^Module$", side=setting.gpu)
    assert (other.rope, other.flash) == ([], ["", "layers", "layers.0", "layers.11", "layers.11.mlp"])


def test_time_on_the_host_is_the_hosts(setting: Setting) -> None:
    """Tensors on the CPU: the call's time."""
    setting.rope("x", work=lambda: setting.clock.advance_ns(1234))
    assert setting.recorder.told() == [
        ("timing", 'rope.cosine_compute_ms{layer="11"}', 1234, 0),
        ("gauge", 'rope.freq_inv_max{layer="11"}', 1.0, 0),
    ]


def test_time_on_a_gpu_is_read_when_it_has_passed(setting: Setting) -> None:
    """Never the time of a launch; in order; with the device; and events are used again."""
    setting.gpu.on_gpu = True
    for ms in (2.0, 3.0):
        setting.run_on_gpu(ms)
    assert setting.recorder.told() == []
    setting.gpu.done_ms = 2.0
    setting.watch.collect()
    assert setting.recorder.told() == [
        ("timing", 'rope.cosine_compute_ms{layer="11"}', 2_000_000, 2),
        ("gauge", 'rope.freq_inv_max{layer="11"}', 1.0, 0),
    ]
    setting.gpu.done_ms = 5.0
    setting.run_on_gpu(1.0)
    assert setting.recorder.told() == [("timing", 'rope.cosine_compute_ms{layer="11"}', 3_000_000, 2)]
    assert setting.gpu.events == 4


def test_a_gpu_that_hangs_takes_no_memory(setting: Setting) -> None:
    """Beyond a bound no pair of events is recorded."""
    setting.gpu.on_gpu = True
    for _ in range(hooks.MOST_PENDING + 5):
        setting.run_on_gpu(1.0)
    assert setting.gpu.events == 2 * hooks.MOST_PENDING
    setting.gpu.done_ms = setting.gpu.now_ms
    setting.watch.collect()
    assert len([1 for kind, *_ in setting.recorder.told() if kind == "timing"]) == hooks.MOST_PENDING


def test_nothing_is_done_while_a_graph_is_captured(setting: Setting) -> None:
    """Events recorded or asked for there would end the capture; a call that began before it is forgotten."""
    setting.gpu.on_gpu = True
    setting.run_on_gpu(1.0)
    setting.recorder.told()
    setting.gpu.capturing = True
    setting.run_on_gpu(1.0)
    setting.watch.collect()
    assert setting.recorder.told() == []
    setting.gpu.capturing = False
    setting.gpu.done_ms = 2.0
    setting.watch.collect()
    assert [kind for kind, *_ in setting.recorder.told()] == ["timing", "gauge"]


def test_a_forward_pass_within_a_backward_pass_is_a_recompute(setting: Setting) -> None:
    """Others are not counted."""
    setting.flash("x")
    setting.gpu.backward = True
    setting.flash("x")
    setting.flash("x")
    assert setting.recorder.told() == [("counter", 'flash_attn.recompute_count{layer="11"}', 1, 0)] * 2


def test_a_recompute_that_is_broken_off_counts(setting: Setting) -> None:
    """A checkpoint stops as soon as it has all that the backward pass asks for, in the middle of the last module."""

    def stop() -> None:
        raise InterruptedError

    setting.gpu.backward = True
    with pytest.raises(InterruptedError):
        setting.flash("x", work=stop)
    assert setting.recorder.told() == [("counter", 'flash_attn.recompute_count{layer="11"}', 1, 0)]


def test_what_is_done_again_is_of_the_last_sequence(setting: Setting) -> None:
    """A backward pass runs in threads of its own, where nobody has named one."""
    with hooks.sequence(7):
        setting.flash("x")
    setting.gpu.backward = True
    setting.flash("x")
    assert setting.recorder.told() == [("counter", 'flash_attn.recompute_count{layer="11",sequence="7"}', 1, 0)]


def test_frequencies_are_told_once_a_sequence_and_copied_once_a_change(setting: Setting) -> None:
    """However often the module runs; the value is that of the copy that has come, never an older one."""
    for number in (7, 7, 8):
        with hooks.sequence(number):
            setting.rope("x")
    gauges = [told for told in setting.recorder.told() if told[0] == "gauge"]
    assert gauges == [("gauge", f'rope.freq_inv_max{{layer="11",sequence="{n}"}}', 1.0, 0) for n in (7, 8)]
    assert setting.gpu.copies == 1
    setting.rope.inv_freq.greatest = 0.5
    setting.rope.inv_freq.version += 1
    setting.gpu.now_ms = 5.0  # not copied yet
    setting.rope("x")
    assert [told for told in setting.recorder.told() if told[0] == "gauge"] == []
    setting.gpu.done_ms = 5.0
    setting.rope("x")
    assert [told for told in setting.recorder.told() if told[0] == "gauge"] == [
        ("gauge", 'rope.freq_inv_max{layer="11"}', 0.5, 0)
    ]
    assert setting.gpu.copies == 2


def test_a_fault_of_a_hook_is_not_the_models(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, once."""

    def broken() -> bool:
        raise RuntimeError("CUDA error")

    setting.gpu.may_observe = broken  # type: ignore[method-assign]  # on purpose
    for _ in range(3):
        setting.rope("x")
    assert [record.message for record in caplog.records] == ["a hook has failed; further faults are not told"]


def test_without_torch_it_says_so() -> None:
    """The one thing that is an error: the call itself makes no sense."""
    with pytest.raises(UsageError, match="torch is not imported"):
        watch(Module())


def test_a_model_of_torch_on_the_cpu() -> None:
    """The real thing, where it is installed: both metrics of a forward pass, and a recompute by checkpointing."""
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    class Rotary(torch.nn.Module):  # type: ignore[misc,name-defined]  # torch ships no types here
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("inv_freq", torch.tensor([1.0, 0.25]))

        def forward(self, x: Any) -> Any:
            return x * self.inv_freq.max()

    class FlashAttention(torch.nn.Module):  # type: ignore[misc,name-defined]  # likewise
        def forward(self, x: Any) -> Any:
            return (x * x).exp()  # keeps what it is made of, which the checkpoint has to make again

    recorder = Silent()
    model = torch.nn.ModuleList([torch.nn.ModuleDict({"rotary": Rotary(), "attention": FlashAttention()})])
    made: Watch = watch(model, observer=Observer(recorder))
    x = torch.ones(3, requires_grad=True)
    out = checkpoint(model[0]["attention"], model[0]["rotary"](x), use_reentrant=False)
    assert {series for _, series, _, _ in recorder.told()} == {
        'rope.cosine_compute_ms{layer="0"}',
        'rope.freq_inv_max{layer="0"}',
    }
    out.sum().backward()
    assert recorder.told() == [("counter", 'flash_attn.recompute_count{layer="0"}', 1, 0)]
    made.remove()
