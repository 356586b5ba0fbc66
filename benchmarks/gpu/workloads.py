"""GPU programs to trace, each a loop of known work: what `overhead.py` and `truth.py` start as processes of their own.

    python benchmarks/gpu/workloads.py {eager,graph,prefill,train,tiny} … [--seconds S | --loops N] [--judge N]

A 16-layer decoder of width 1024 in bfloat16. `eager` decodes token by token and is bound by launches, `graph` replays
the same as a CUDA graph, `prefill` takes 480 tokens at once, `train` is a step with backward pass and optimizer, `tiny`
is 2,000 kernels that do next to nothing. NVTX ranges name the loop and, in the decoder, each attention and feed-forward
block. Prints a line of JSON for each: loops, seconds, loops a second, and of that time the main thread's processor time
and the whole process's, resident memory, the GPU's memory in use. `--warm S` lets S seconds pass before. `--peer`
traces the same with cupti-python's callbacks, or with torch.profiler. `--judge` runs that many loops under
torch.profiler and prints how often each kernel ran and for how long, as Kineto has it. With `--loops` as well, so many
loops run before the profiler and, ten seconds later, after it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.cuda import nvtx

LAYERS, WIDTH, HEADS, BATCH = 16, 1024, 16, 4
_WARM_LOOPS = 20


class Block(nn.Module):  # type: ignore[misc]  # torch need not be installed
    """Attention over a fixed context, then feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, tokens, width)."""
        nvtx.range_push("attention")
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, WIDTH)
        x = x + self.out(mixed)
        nvtx.range_pop()
        nvtx.range_push("ffn")
        x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        nvtx.range_pop()
        return x


def step(name: str) -> Callable[[], object]:
    """One loop of a workload; its outermost range is the request."""
    torch.manual_seed(1)
    if name == "tiny":
        small = torch.zeros(256, device="cuda")

        def tiny() -> None:
            for _ in range(2000):
                small.add_(1.0)

        return tiny
    model = nn.Sequential(*(Block() for _ in range(LAYERS))).to("cuda", torch.bfloat16)
    tokens = 480 if name in {"prefill", "train"} else 1
    x = torch.randn(BATCH, tokens, WIDTH, device="cuda", dtype=torch.bfloat16)
    if name == "train":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def train() -> None:
            model(x).float().pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return train
    for parameter in model.parameters():
        parameter.requires_grad_(requires_grad=False)
    if name != "graph":
        return lambda: model(x)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    replay: Callable[[], object] = graph.replay
    return replay


def some(loop: Callable[[], object], count: int) -> None:
    """So many loops, and the GPU is waited for: no queue grows."""
    for _ in range(count):
        nvtx.range_push("request")
        loop()
        nvtx.range_pop()
    torch.cuda.synchronize()


def run(loop: Callable[[], object], loops: int, seconds: float, warm: float = 0.0) -> dict[str, float]:
    """So many loops, or as many as fit."""
    some(loop, _WARM_LOOPS)
    before = _WARM_LOOPS
    begun = time.perf_counter()
    while time.perf_counter() - begun < warm:
        some(loop, 8)
        before += 8
    begun, thread, process, done = time.perf_counter(), time.thread_time(), time.process_time(), 0
    while done < loops or (not loops and time.perf_counter() - begun < seconds):
        count = min(8, loops - done) if loops else 8
        some(loop, count)
        done += count
    spent = time.perf_counter() - begun
    free, total = torch.cuda.mem_get_info()
    return {
        "loops": done,
        "loops_in_all": before + done,
        "seconds": spent,
        "loops_per_s": done / spent,
        "thread_s": time.thread_time() - thread,
        "process_s": time.process_time() - process,
        "rss_mib": int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20,
        "gpu_mib": (total - free) / 2**20,
    }


class CuptiPython:
    """What NVIDIA's own Python binding asks for: each record becomes an object, in a callback under the GIL."""

    def __enter__(self) -> CuptiPython:
        from cupti import cupti

        self.cupti = cupti
        self.rows: list[tuple[Any, ...]] = []
        kinds = (cupti.ActivityKind.CONCURRENT_KERNEL, cupti.ActivityKind.MEMCPY, cupti.ActivityKind.MEMSET)
        cupti.activity_register_callbacks(lambda: (8 << 20, 0), self._completed)
        for kind in kinds:
            cupti.activity_enable(kind)
        return self

    def _completed(self, activities: list[Any]) -> None:
        self.rows = [(one.kind, one.start, one.end, getattr(one, "name", "")) for one in activities]

    def __exit__(self, *_: object) -> None:
        self.cupti.activity_flush_all(0)


class Profiler:
    """torch.profiler over all of it, GPU activity alone."""

    def __enter__(self) -> Profiler:
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self.profile.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.profile.__exit__(None, None, None)


PEERS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "none": nullcontext,
    "cupti-python": CuptiPython,
    "torch.profiler": Profiler,
}


def judge(loop: Callable[[], object], loops: int) -> dict[str, object]:
    """What Kineto records of so many loops: executions and ns by kernel; copies and memory sets apart."""
    for _ in range(_WARM_LOOPS):
        loop()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(loops):
            loop()
        torch.cuda.synchronize()
    count: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for event in profile.profiler.kineto_results.events():
        if event.device_type() == torch.autograd.DeviceType.CUDA and not event.name().startswith("gpu_"):
            count[event.name()] += 1
            spent[event.name()] += event.duration_ns()
    return {"count": count, "ns": spent}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=["eager", "graph", "prefill", "train", "tiny"])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm", type=float, default=0.0)
    parser.add_argument("--loops", type=int, default=0)
    parser.add_argument("--judge", type=int, default=0)
    parser.add_argument("--peer", choices=PEERS, default="none")
    words = parser.parse_args()
    for name in words.names:
        made = step(name)
        if words.judge and words.loops:
            run(made, words.loops, 0)
            result = judge(made, words.judge)
            time.sleep(10)
            run(made, words.loops, 0)
        elif words.judge:
            result = judge(made, words.judge)
        else:
            with PEERS[words.peer]():
                result = dict(run(made, words.loops, words.seconds, words.warm))
        print(json.dumps(result), flush=True)
