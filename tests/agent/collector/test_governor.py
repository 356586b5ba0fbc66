"""The governor against a program with known costs: within its budget, and its counts unbiased."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.agent.collector.building import SOURCES

MS = 1_000_000
S = 1000 * MS


class Observed(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("on_ns", "on_launches", "off_ns", "off_launches")]


class Plan(ctypes.Structure):
    _fields_ = [("full", ctypes.c_bool), ("on_ns", ctypes.c_uint64), ("off_ns", ctypes.c_uint64)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """governor.c alone."""
    target = tmp_path_factory.mktemp("governor") / "governor.so"
    words = ["gcc", "-std=c11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", target, SOURCES / "governor.c"]
    subprocess.run(list(map(str, words)), check=True)
    found = ctypes.CDLL(str(target))
    found.governor_plan.restype = Plan
    found.governor_plan.argtypes = [ctypes.c_void_p, Observed]
    found.governor_start.argtypes = [ctypes.c_void_p, ctypes.c_double, ctypes.c_uint64]
    found.governor_saw_spans.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
    found.governor_affords_full.restype = ctypes.c_bool
    found.governor_affords_full.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
    found.governor_jitter.restype = ctypes.c_uint64
    found.governor_jitter.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    return found


@dataclass
class Simulated:
    """A program that launches at a pace which tracing slows down, driven as windows.c drives it, 5 ms at a time.

    Attributes:
        pace: launches a second at a time (s), if nothing is traced.
        slow: share by which it is slower while kinds are on, for a pace and spans a launch.
        residue: the same for ever.
        history: of each step: time, share of time lost, launches, what they count as.
    """

    library: ctypes.CDLL
    pace: Callable[[float], float]
    spans: int = 1
    slow: Callable[[float, int], float] = lambda pace, spans: pace * (0.5e-6 + 0.3e-6 * spans)
    residue: Callable[[float, int], float] = lambda pace, spans: pace * (8e-6 if spans > 8 else 0.7e-6)
    budget: float = 0.01
    noise: float = 0.0
    seed: int = 1
    history: list[tuple[float, float, float, float]] = field(default_factory=list)

    def run(self, seconds: float) -> Simulated:
        lots, state = np.random.default_rng(self.seed), ctypes.create_string_buffer(512)
        self.library.governor_start(state, self.budget, self.seed)
        now, step = 0, 5 * MS
        mode, until, since, launches_in, launches_off, off_ns = "full", 100 * MS, 0, 0.0, 0.0, 0
        plan = Plan()
        while now < seconds * S:
            pace = self.pace(now / S)
            on = mode != "off"
            lost = (self.slow(pace, self.spans) if on else 0) + self.residue(pace, self.spans)
            done = pace / (1 + lost) * step / S * (1 + self.noise * lots.uniform(-1, 1))
            counted = 0.0
            if on:
                launches_in += done
                counted = done if mode == "full" else 0
            else:
                launches_off += done
                off_ns += step
            self.history.append((now / S, lost, done, counted))
            now += step
            if now < until:
                continue
            if mode == "full":
                self.library.governor_saw_spans(state, int(launches_in) * self.spans, int(launches_in))
                if self.library.governor_affords_full(state, int(launches_in), now - since):
                    until, since, launches_in = now + 100 * MS, now, launches_in % 1
                    continue
                plan = self.library.governor_plan(state, Observed(now - since, int(launches_in), 0, 0))
                mode, launches_off, off_ns = "off", launches_in % 1, 0
                until = now + self.library.governor_jitter(state, plan.off_ns)
            elif mode == "off":
                mode, since, launches_in, until = "window", now, launches_off % 1, now + max(plan.on_ns, step)
            else:
                total = launches_in + launches_off  # what the window's spans stand for
                at, lost, done, _ = self.history[-1]
                self.history[-1] = (at, lost, done, total)
                observed = Observed(now - since, int(launches_in), off_ns, int(launches_off))
                self.library.governor_saw_spans(state, int(launches_in) * self.spans, int(launches_in))
                plan = self.library.governor_plan(state, observed)
                launches_off, off_ns, launches_in = launches_in % 1, 0, 0.0
                if plan.full:
                    mode, since, until = "full", now, now + 100 * MS
                else:
                    mode = "off"
                    until = now + self.library.governor_jitter(state, plan.off_ns)
        return self

    def overhead(self, begin: float, end: float) -> float:
        """Mean share of time lost to tracing alone, residue not counted."""
        steps = [
            (lost - self.residue(self.pace(at), self.spans)) for at, lost, _, _ in self.history if begin <= at < end
        ]
        return sum(steps) / len(steps)

    def launched(self) -> float:
        return sum(done for _, _, done, _ in self.history)

    def counted(self) -> float:
        return sum(counted for _, _, _, counted in self.history)


@pytest.mark.parametrize(("pace", "spans"), [(1000, 176), (300, 176), (9000, 1), (900, 50)])
def test_a_steady_program_stays_within_its_budget(library: ctypes.CDLL, pace: float, spans: int) -> None:
    """Tracing and what it leaves behind together, from 5 s on."""
    run = Simulated(library, lambda _: pace, spans).run(120)
    assert run.overhead(5, 120) + run.residue(pace, spans) <= 0.0105


@pytest.mark.parametrize("pace", [20_000, 60_000, 150_000, 300_000])
def test_where_the_budget_is_spent_a_tenth_of_it_buys_windows(library: ctypes.CDLL, pace: float) -> None:
    """Bound by launches, what having been on once costs is all but everything that is felt."""
    run = Simulated(library, lambda _: pace).run(300)
    assert 0 < run.overhead(5, 300) <= 0.0016


def test_a_light_program_is_traced_in_full(library: ctypes.CDLL) -> None:
    """Nothing is sampled where it need not be."""
    run = Simulated(library, lambda _: 5000).run(20)
    assert run.counted() == pytest.approx(run.launched(), rel=1e-9)


def test_from_10k_to_300k_kernels_a_second_and_back(library: ctypes.CDLL) -> None:
    """Graphs of 1,000 kernels: within budget 5 s after each change, full again when it is over, counts within 1 %."""

    def pace(at: float) -> float:
        return 10 if at < 60 or at >= 180 else 300

    run = Simulated(library, pace, spans=1000).run(300)
    assert run.overhead(0, 60) + run.residue(10, 1000) <= 0.0105
    assert run.overhead(65, 180) + run.residue(300, 1000) <= 0.0105
    assert run.overhead(185, 300) + run.residue(10, 1000) <= 0.0105
    last = max(index for index, step in enumerate(run.history) if step[3])
    assert sum(step[3] for step in run.history) == pytest.approx(sum(s[2] for s in run.history[: last + 1]), rel=0.01)


def test_what_is_measured_is_believed_where_it_is_sure(library: ctypes.CDLL) -> None:
    """A program that waits for the GPU feels a tenth of what is reckoned: it is traced more, still within budget."""
    reckoned = Simulated(library, lambda _: 800, 176).run(300)
    waiting = Simulated(library, lambda _: 800, 176, slow=lambda pace, spans: 0.1 * pace * (0.5e-6 + 0.3e-6 * spans))
    waiting.noise = 0.002
    waiting.run(300)
    assert waiting.overhead(150, 300) + waiting.residue(800, 176) <= 0.0105

    def on(run: Simulated) -> float:
        return sum(lost > run.residue(800, 176) for at, lost, _, _ in run.history if at >= 150)

    assert on(waiting) > 2 * on(reckoned)


def test_windows_do_not_keep_step_with_the_program(library: ctypes.CDLL) -> None:
    """A program that works a second and rests a second is counted within 2 %, whatever its phase."""
    total, counted = 0.0, 0.0
    for seed in range(12):

        def pace(at: float, phase: float = seed / 12) -> float:
            return 40_000 if (at / 2 + phase) % 1 < 0.5 else 4000

        run = Simulated(library, pace, seed=seed).run(200)
        last = max(index for index, step in enumerate(run.history) if step[3])
        total += sum(step[2] for step in run.history[: last + 1])
        counted += run.counted()
    assert counted == pytest.approx(total, rel=0.02)
