"""The hooks of docs/custom-metrics.md on a real GPU: what they tell against what is known, and what they cost.

    PYTHONPATH=core:agent python benchmarks/gpu/observed.py

Needs PyTorch with CUDA; numpy is not needed. Checked are: each call's GPU time is told once, and is near what two
events around the call say; a checkpointed layer's recomputes are counted one for one; the greatest frequency is told
once a sequence; a graph can be captured with the hooks on, and nothing is told of it. Printed: the time of a step with
and without hooks, in turns, and how long the host takes for one.
"""

from __future__ import annotations

import json
import statistics
import struct
import time
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from spanlite.agent import hooks
from spanlite.agent.observe import Observer
from spanlite.agent.recorder import INTEGER, MOST_BYTES, Recorder

LAYERS, STEPS, ROUNDS = 8, 50, 7


class Kept(Recorder):
    """Keeps what is observed instead of sending it."""

    def make_room(self) -> bool:
        self.room = MOST_BYTES
        return len(self.buffer) < self.room

    def told(self) -> list[tuple[str, float]]:
        """Series and value of each record, and nothing is kept any more."""
        found: list[tuple[str, float]] = []
        for number, _, value, kind, _ in INTEGER.iter_unpack(bytes(self.buffer)):
            known = struct.unpack("<d", struct.pack("<q", value))[0] if kind == 7 else value
            found.append((self._texts[number - 1].decode(), known))
        del self.buffer[:]
        return found


class RotaryEmbedding(torch.nn.Module):  # type: ignore[misc]  # torch ships no types here
    """As language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / 10_000 ** (torch.arange(0, 128, 2).float() / 128))

    def forward(self, positions: Any) -> Any:
        angles = positions[:, None].float() * self.inv_freq
        return torch.cat((angles.cos(), angles.sin()), dim=-1)


class FlashAttention(torch.nn.Module):  # type: ignore[misc]  # likewise
    """PyTorch's own kernel, under the name that hooks look for."""

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


class Layer(torch.nn.Module):  # type: ignore[misc]  # likewise
    """One of the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary, self.attention = RotaryEmbedding(), FlashAttention()

    def forward(self, x: Any, positions: Any) -> Any:
        return self.attention(x * self.rotary(positions))


def step(model: Any, x: Any, positions: Any, *, again: bool) -> Any:
    """A forward pass; `again`: each layer is run once more by the backward pass."""
    for layer in model:
        x = checkpoint(layer, x, positions, use_reentrant=False) if again else layer(x, positions)
    return x


def check(model: Any, x: Any, positions: Any) -> dict[str, float]:
    """Everything but cost."""
    recorder = Kept()
    watched = hooks.watch(model, observer=Observer(recorder))
    assert (len(watched.rope), len(watched.flash)) == (LAYERS, LAYERS)
    with hooks.sequence(7):
        step(model, x, positions, again=True).sum().backward()
        torch.cuda.synchronize()
        watched.collect()
    told = recorder.told()
    for layer in range(LAYERS):
        series = f'{{layer="{layer}",sequence="7"}}'
        times = [value for name, value in told if name == f"rope.cosine_compute_ms{series}"]
        assert len(times) == 2, (layer, times)  # forward, and once more in the backward pass
        assert all(0 < ns < 100e6 for ns in times), times
        assert [v for n, v in told if n == f"rope.freq_inv_max{series}"] == [1.0], told
        assert [v for n, v in told if n == f"flash_attn.recompute_count{series}"] == [1], told
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    model[0].rotary(positions)
    end.record()
    torch.cuda.synchronize()
    watched.collect()
    (ns,) = [value for name, value in recorder.told() if name.startswith("rope.cosine")]
    around_ns = begin.elapsed_time(end) * 1e6
    assert 0 < ns <= around_ns * 1.05 + 2000, (ns, around_ns)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        step(model, x, positions, again=False)
    graph.replay()
    torch.cuda.synchronize()
    watched.collect()
    assert recorder.told() == []
    watched.remove()
    return {"hook_us": ns / 1e3, "events_around_us": around_ns / 1e3}


def seconds(model: Any, x: Any, positions: Any) -> tuple[float, float]:
    """Of one step: until the GPU has finished, and until the host has launched it."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.no_grad():
        for _ in range(STEPS):
            step(model, x, positions, again=False)
    launched = time.perf_counter() - begin
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS, launched / STEPS


def main() -> None:
    """Checks, measures, prints."""
    torch.manual_seed(0)
    model = torch.nn.ModuleList(Layer() for _ in range(LAYERS)).cuda()
    x = torch.randn(1, 16, 4096, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    positions = torch.arange(4096, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        seconds(model, x, positions)
        told: dict[str, Any] = dict(check(model, x, positions))
        with_hooks, without = [], []
        recorder = Kept()
        for _ in range(ROUNDS):
            without.append(seconds(model, x, positions))
            watched = hooks.watch(model, observer=Observer(recorder))
            with_hooks.append(seconds(model, x, positions))
            watched.remove()
            del recorder.buffer[:]
    for at, word in enumerate(("step", "launch")):
        bare, hooked = (statistics.median(each[at] for each in runs) for runs in (without, with_hooks))
        told |= {f"{word}_us": bare * 1e6, f"{word}_hooked_us": hooked * 1e6}
    told["hooks_us_per_layer"] = (told["launch_hooked_us"] - told["launch_us"]) / LAYERS
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
