"""A program run for the doctor: the one that plays a traced process, with an imitation of CUPTI."""

from __future__ import annotations

import shlex
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from spanlite.agent.counts import AgentCounts
from spanlite.agent.doctor.finding import Finding, Level
from spanlite.agent.doctor.listening import Heard, Listening
from spanlite.agent.doctor.probe import real_probe
from spanlite.agent.doctor.trial import trial
from spanlite.agent.doctor.verdict import verdict
from spanlite.agent.frames import Frame, pack_frame, pack_text
from spanlite.contract import catalogue
from spanlite.runtime.clock import SystemClock
from tests.agent.collector.building import Built, build
from tests.agent.collector.program import until
from tests.agent.collector.recorded import fired

RECORDING = "serve-cupti130500"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("collector"))


def tried(
    built: Built, folder: Path, lines: Sequence[str], *, then: str = "", seconds: float = 60, **variables: str
) -> dict[str, Finding]:
    """Findings by id of a program that does what the lines say."""
    script = folder / "lines"
    script.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    driver = shlex.quote(str(built.folder / "driver"))
    command = ["sh", "-c", f"(cat {shlex.quote(str(script))}; sleep 1) | {driver}{then}"]
    probe = real_probe({"PATH": "/usr/bin:/bin", "SPANLITE_FLUSH_MS": "20", **variables})
    return {one.id: one for one in trial(probe, command, seconds=seconds, collector=built.collector)}


def loaded(built: Built) -> list[str]:
    return [f"preload {built.cuda}", f"preload {built.cupti}"]


def levels(findings: dict[str, Finding]) -> dict[str, Level]:
    return {name: finding.level for name, finding in findings.items() if not name.startswith("cupti.")}


def test_what_came_is_counted_as_the_agent_counts_it(built: Built, tmp_path: Path) -> None:
    """Kernels, names, CUPTI's version and the state of a whole recording; nothing is dropped."""
    what = fired(RECORDING, built.arena)
    names, records = what.put(tmp_path)
    lines = [
        *loaded(built),
        f"set version {what.version}",
        names,
        f"init {built.collector}",
        "context",
        records,
        "flush",
    ]
    told = tried(built, tmp_path, lines)
    assert levels(told) == {
        "trial.ended": Level.NOTE,
        "trial.cupti": Level.OK,
        "trial.state": Level.OK,
        "trial.kernels": Level.OK,
        "trial.dropped": Level.OK,
    }
    assert f"CUPTI 130500 (CUDA 13.5), {built.cupti}" in told["trial.cupti"].found
    kernels, others = (int(word.replace(",", "")) for word in _numbers(told["trial.kernels"].found))
    assert kernels + others == what.spans
    assert f" of {len(set(what.names.values()))} names" in told["trial.kernels"].found


def _numbers(text: str) -> tuple[str, str]:
    """Kernels, and copies with memory sets."""
    before, _, after = text.partition(" kernels of ")
    return before.split()[-1], after.partition(" copies")[0].split()[-1]


def test_a_context_without_records_is_a_failure(built: Built, tmp_path: Path) -> None:
    """CUPTI that is silent without an error shows here."""
    told = tried(built, tmp_path, [*loaded(built), f"init {built.collector}", "context"])
    assert levels(told)["trial.no_kernels"] == Level.FAILURE
    assert levels(told)["trial.state"] == Level.OK


def test_calls_without_records_are_a_failure(built: Built, tmp_path: Path) -> None:
    """Correlation ids rose between two ranges, so CUDA was called: no kernel can only be CUPTI's doing."""
    ranges = [f"nvtx {built.collector}", "push a", *["launch"] * 50, "pop"]
    told = tried(built, tmp_path, [*loaded(built), f"init {built.collector}", "context", *ranges])
    assert levels(told)["trial.no_records"] == Level.FAILURE


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        ([], "trial.no_cuda"),
        (["cuda"], "trial.not_loaded"),
        (["cuda", "init"], "trial.no_cupti"),
        (["cuda", "cupti", "set version 25", "init"], "trial.silent"),
    ],
)
def test_a_program_that_does_not_connect_is_told_how_far_it_came(
    built: Built, tmp_path: Path, lines: Sequence[str], finding: str
) -> None:
    """Which of the libraries were loaded says what is missing."""
    words = {"cuda": f"preload {built.cuda}", "cupti": f"preload {built.cupti}", "init": f"init {built.collector}"}
    told = tried(built, tmp_path, [words.get(line, line) for line in lines])
    assert levels(told) == {"trial.ended": Level.NOTE, finding: Level.FAILURE}


def test_another_tool_s_hold_on_cupti_is_a_failure(built: Built, tmp_path: Path) -> None:
    """The state that the collector tells is passed on with its remedy."""
    lines = [*loaded(built), "set subscribe_result 39", f"init {built.collector}", "context"]
    told = tried(built, tmp_path, lines)
    assert levels(told)["trial.state"] == Level.FAILURE
    assert "subscriber_conflict" in told["trial.state"].found
    assert "end that one" in told["trial.state"].fix


def gone(pid: int) -> bool:
    """A zombie is gone too: who reaps it is not ours to say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("then", "said"),
    [("; wait", "and was ended (--seconds 2)"), ("; exit 0", "the program ended by itself")],
    ids=["runs on", "leaves one behind"],
)
def test_nothing_of_the_program_is_left(built: Built, tmp_path: Path, then: str, said: str) -> None:
    """Time over, or over by itself: children in the background go too."""
    child = tmp_path / "child"
    told = tried(built, tmp_path, [], then=f"; sleep 1000 & echo $! > {shlex.quote(str(child))}{then}", seconds=2)
    assert said in told["trial.ended"].found
    until(lambda: gone(int(child.read_text("utf-8"))), "the end of the child")


def test_a_program_that_fails_or_is_not_there_is_told(built: Built, tmp_path: Path) -> None:
    """Its exit code is no failure of ours, its absence is."""
    told = tried(built, tmp_path, [], then="; exit 7")
    assert "the program ended with 7" in told["trial.ended"].found
    (one,) = trial(real_probe({"PATH": "/usr/bin"}), ["no-such-program"], seconds=1, collector=built.collector)
    assert (one.id, one.level) == ("trial.not_started", Level.FAILURE)
    taken = {"PATH": "/usr/bin", "CUDA_INJECTION64_PATH": "/opt/other.so"}
    (one,) = trial(real_probe(taken), ["true"], seconds=1, collector=built.collector)
    assert "/opt/other.so already" in one.found


def test_the_kill_switch_is_told(built: Built, tmp_path: Path) -> None:
    """Nothing came because nothing was to come."""
    lines = [*loaded(built), f"init {built.collector}", "context"]
    assert "SPANLITE_DISABLE=1" in tried(built, tmp_path, lines, SPANLITE_DISABLE="1")["trial.silent"].found


def test_losses_and_unknown_stages_are_judged_by_their_share() -> None:
    """Reasons are named; one span in a thousand without a stage is a note, one in ten a warning."""
    one = Heard(7, hello={"cupti_version": "130401"}, state="active", kernels=1000, first_ns=1, last_ns=2 * 10**9 + 1)
    for unknown, level in ((1, Level.NOTE), (100, Level.WARNING)):
        counts = AgentCounts()
        counts.add(catalogue.AGENT_SPANS_RECEIVED, 1000)
        counts.add(catalogue.AGENT_SPANS_UNSTAGED, unknown)
        counts.add_told({"dropped.cupti": "5"})
        told = {finding.id: finding for finding in verdict([one], counts, set(), {})}
        assert told["trial.unknown_stages"].level == level
        assert told["trial.dropped"].level == Level.WARNING
        assert "5 cupti" in told["trial.dropped"].found
        assert "500 a second over 2.0 s" in told["trial.kernels"].found


def heard_of(folder: Path, *frames: bytes) -> list[Heard]:
    """What one connection with these frames told."""
    agent = Listening(folder / "a.sock", SystemClock())
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(folder / "a.sock"))
        peer.sendall(b"".join(frames))
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)
    agent.stop(60)
    return agent.heard


def test_a_connection_that_sends_no_spans_is_no_fault() -> None:
    """Programs that tell of their kernels' sources say HELLO with version 0; they are no collectors."""
    hello = pack_frame(Frame.HELLO, pack_text({"cupti_version": "0", "session": "ab"}), 0)
    with tempfile.TemporaryDirectory() as folder:
        (one,) = heard_of(Path(folder), hello, pack_frame(Frame.BYE, b"", 1))
    assert (one.fault, one.collects) == ("", False)


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        ([b"GET / HTTP/1.1\r\n\r\n"], "a frame starts with"),
        ([pack_frame(Frame.BYE, b"", 0)], "the first frame is BYE, not HELLO"),
        ([pack_frame(Frame.HELLO, pack_text({"cupti_version": "17", "session": "ab"}), 0)], "version 17 is unknown"),
        ([pack_frame(Frame.HELLO, b"a=b\n", 0)[:-1]], "the process ended inside a frame"),
        ([b"SPLF"], "the process ended inside a header"),
    ],
)
def test_what_an_agent_cannot_read_is_kept_as_a_fault(frames: list[bytes], fault: str) -> None:
    """The connection ends, and the trial says why."""
    with tempfile.TemporaryDirectory() as folder:
        (one,) = heard_of(Path(folder), *frames)
    assert fault in one.fault


def test_frames_that_make_no_sense_are_a_failure() -> None:
    """The agent would hang up on such a process."""
    (fault, silent) = verdict([Heard(7, fault="frame type 99 is not known")], AgentCounts(), set(), {})
    assert (fault.id, fault.level) == ("trial.fault", Level.FAILURE)
    assert silent.id == "trial.no_cuda"
