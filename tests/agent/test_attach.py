"""attach(): a real Python program that has itself traced, by either collector, with an imitation of CUPTI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanlite.agent.collector.finding import packaged_cupti
from spanlite.agent.frames import Frame, unpack_text
from tests.agent.collector.building import Built, build
from tests.agent.collector.kernels import delivered, kernels
from tests.agent.collector.program import until
from tests.agent.collector.tap import Tap

BOTH = pytest.mark.parametrize("native", [True, False])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("attach"))


@pytest.fixture
def tap() -> Iterator[Tap]:
    with tempfile.TemporaryDirectory() as folder:
        listener = Tap(Path(folder) / "agent.sock")
        yield listener
        listener.stop()


def ran(built: Built, script: str, *words: str | Path, **variables: str) -> list[str]:
    """The lines that a program writes; C is the collector's path, M the imitation of CUPTI, loaded."""
    begin = f"import ctypes, os, sys\nC = {str(built.collector)!r}\nfrom spanlite.agent import attach\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + script, *map(str, words)],
        env={"PATH": os.defpath, "SPANLITE_BUDGET": "full", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def load(built: Built) -> str:
    """The line that loads the imitations, as `import torch` would."""
    return f"ctypes.CDLL({str(built.cuda)!r}); M = ctypes.CDLL({str(built.cupti)!r})\n"


@BOTH
def test_a_program_traces_itself(built: Built, tap: Tap, tmp_path: Path, *, native: bool) -> None:
    """Kernels and a stage arrive from a program with two lines of ours; a second attach gives the same."""
    (tmp_path / "records").write_bytes(kernels(10))
    script = load(built) + (
        "M.mock_fire.argtypes = [ctypes.c_char_p, ctypes.c_size_t]\n"
        "a = attach(socket=sys.argv[1], collector=C, native=sys.argv[2] == 'True', budget='full')\n"
        "print(a.kind, a.state, repr(a.why), attach() is a)\n"
        "M.mock_context()\n"
        "print(a.state)\n"
        "with a.range('outer'), a.range('inner'): M.mock_launch()\n"
        "records = open(sys.argv[3], 'rb').read()\n"
        "M.mock_fire(records, len(records))\n"
        "with a.paused(): print(a.state, M.mock_fire(records, len(records)))\n"
        "print(a.state)\n"
        "M.mock_fire(records, len(records))\n"
    )
    lines = ran(built, script, tap.path, str(native), tmp_path / "records")
    kind = "native" if native else "python"
    assert lines == [f"{kind} waiting '' True", "active", "paused 0", "active"]
    until(lambda: bool(tap.connections) and tap.connections[0].over, "the end of the connection")
    assert delivered(tap) == 20
    assert set(tap.connections[0].names().values()) >= {"outer", "inner"}
    assert len(b"".join(tap.connections[0].of(Frame.RANGES))) == 4 * 32
    assert unpack_text(tap.connections[0].of(Frame.BYE)[0]) == {"reason": "the process exits"}


@BOTH
def test_the_kill_switch_makes_it_nothing(built: Built, *, native: bool) -> None:
    """SPANLITE_DISABLE=1: nothing is loaded, the object says so, and everything on it may be called."""
    script = (
        f"a = attach(collector=C, native={native})\n"
        "with a.range('x'), a.paused(): print(a.kind, a.state, a.why)\n"
        "print('libspanlite' in open('/proc/self/maps').read(), 'ctypes.CDLL' in sys.modules)\n"
    )
    begin = "import logging; logging.disable()\n"
    assert ran(built, begin + script, SPANLITE_DISABLE="1") == ["none disabled SPANLITE_DISABLE=1", "False False"]


@BOTH
def test_another_injection_is_not_pushed_out(built: Built, *, native: bool) -> None:
    """A profiler that CUDA is to load keeps its place: nothing is traced, the program goes on and is told why."""
    script = (
        "import logging; logging.disable()\n"
        f"a = attach(collector=C, native={native}); print(a.kind, a.state); print(a.why)\n"
    )
    state, why = ran(built, script, CUDA_INJECTION64_PATH="/opt/nsys.so")
    assert state == "none other_injection"
    assert why.startswith("CUDA_INJECTION64_PATH names /opt/nsys.so already")


@BOTH
def test_the_child_of_a_fork_is_refused(built: Built, tap: Tap, *, native: bool) -> None:
    """CUDA does not work after a fork: the child gets an object that does nothing, the parent's says the same there."""
    script = load(built) + (
        "import logging; logging.disable()\n"
        f"a = attach(socket=sys.argv[1], collector=C, native={native}); M.mock_context()\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "if os.fork() == 0:\n"
        "    b = attach(); print(b.kind, b.state, a.state, flush=True); os._exit(0)\n"
        "os.wait(); print(a.state)\n"
    )
    assert ran(built, script, tap.path) == ["none forked forked", "active"]


def test_nvtx_is_told_of_the_library_and_children_of_nothing_else(built: Built, tap: Tap) -> None:
    """Ranges come through NVTX's variable, the tool that had it goes first; CUDA's variable stays as it was."""
    script = load(built) + (
        "attach(socket=sys.argv[1], collector=C)\n"
        "os.environ.pop('SPANLITE_BUDGET')\n"
        "print(*(f'{k}={v}' for k, v in os.environ.items() if 'INJECTION' in k or 'SPANLITE' in k), sep='\\n')\n"
    )
    lines = ran(built, script, tap.path, NVTX_INJECTION64_PATH="/opt/tool.so", SPANLITE_PID="1")
    assert sorted(lines) == [
        f"NVTX_INJECTION64_PATH={built.collector}",
        "SPANLITE_NVTX_NEXT=/opt/tool.so",
        f"SPANLITE_SOCKET={tap.path}",
    ]


def test_without_stages_nvtx_is_left_alone(built: Built) -> None:
    """stages=False by argument goes before the environment."""
    script = load(built) + (
        "attach(stages=False, duty='20/200', budget=0.5, collector=C)\n"
        "print(os.environ.get('NVTX_INJECTION64_PATH'))\n"
        "print(*(os.environ['SPANLITE_' + key] for key in ('STAGES', 'DUTY', 'BUDGET')))\n"
    )
    assert ran(built, script, SPANLITE_STAGES="1") == ["None", "0 20/200 0.5"]


def test_without_the_library_the_twin_takes_over_unless_it_was_asked_for(built: Built) -> None:
    """native="auto" without a built library is the twin; native=True and a path that is none say what to do."""
    script = load(built) + (
        "m = sys.modules['spanlite.agent.attach']\n"
        "from spanlite.contract.errors import UsageError\n"
        "def find(named=None): raise UsageError('not built')\n"
        "m.find_collector = find\n"
        "for arguments in ({'native': True}, {'collector': '/none.so'}):\n"
        "    try: attach(**arguments)\n"
        "    except UsageError as error: print(error)\n"
        "print(attach().kind)\n"
    )
    assert ran(built, script) == ["not built", "not built", "python"]


def test_the_twin_says_that_it_knows_no_budget(built: Built) -> None:
    """It traces everything: who asked for less is warned, and HELLO says full."""
    script = load(built) + "import logging; logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
    script += "attach(native=False, budget=1, duty='20/200')\n"
    said = "spanlite's collector in Python traces everything: SPANLITE_DUTY or SPANLITE_BUDGET means nothing to it"
    assert ran(built, script) == [said]


def test_a_library_that_is_none_leaves_the_program_alone(built: Built, tmp_path: Path) -> None:
    """Another machine's, or another library: a state and a sentence, and the program goes on."""
    (tmp_path / "text.so").write_text("no library")
    script = "import logging; logging.disable()\na = attach(collector=sys.argv[1]); print(a.state); print(a.why)\n"
    for path in (tmp_path / "text.so", built.cuda):
        state, why = ran(built, script, path)
        assert state == "not_loadable"
        assert why.startswith(f"{path} cannot be loaded here: ")


def test_importing_it_costs_the_standard_library_alone(built: Built) -> None:
    """Neither numpy nor anything else of the agent's dependencies is imported into the traced program."""
    script = (
        "attach(native=False)\nprint('numpy' in sys.modules, 'google' in sys.modules, 'zstandard' in sys.modules)\n"
    )
    assert ran(built, script)[-1] == "False False False"


@BOTH
@pytest.mark.parametrize("first", ["attach", "torch"])
def test_the_framework_s_libcupti_is_the_one(
    built: Built, tap: Tap, tmp_path: Path, *, native: bool, first: str
) -> None:
    """Attached before the framework loads its libcupti or after it: the process has one, that of the package."""
    package = tmp_path / "nvidia/cu13/lib"
    package.mkdir(parents=True)
    shutil.copy(built.cupti, package)
    attached = f"a = attach(socket=sys.argv[1], collector=C, native={native})\n"
    imported = f"M = ctypes.CDLL({str(package / built.cupti.name)!r})\n"
    script = f"sys.path.insert(0, {str(tmp_path)!r}); ctypes.CDLL({str(built.cuda)!r})\n"
    script += attached + imported if first == "attach" else imported + attached
    script += "M.mock_context(); print(a.state)\n"
    assert ran(built, script, tap.path) == ["active"]
    until(lambda: bool(tap.connections) and tap.connections[0].over, "the end of the connection")
    assert tap.connections[0].hello["resource.cupti.path"] == str(package / built.cupti.name)


def test_ranges_are_stamped_though_the_driver_was_not_loaded_before(built: Built, tap: Tap) -> None:
    """attach() before everything else: libcuda is there when the collector looks for it."""
    script = (
        "a = attach(socket=sys.argv[1], collector=C)\n"
        f"M = ctypes.CDLL({str(built.cupti)!r}); M.mock_context()\n"
        "with a.range('early'): pass\n"
    )
    libraries = {"LD_LIBRARY_PATH": str(built.folder), "SPANLITE_CUPTI": str(built.cupti), "SPANLITE_BUDGET": "full"}
    ran(built, script, tap.path, **libraries)
    until(lambda: bool(tap.connections) and tap.connections[0].over, "the end of the connection")
    assert list(tap.connections[0].names().values()) == ["early"]
    assert len(b"".join(tap.connections[0].of(Frame.RANGES))) == 2 * 32


@pytest.mark.parametrize("active", [0, 1])
def test_a_program_that_has_a_context_is_at_work(built: Built, tap: Tap, active: int) -> None:
    """attach() after the first use of CUDA: no context comes any more that would wake the collector."""
    script = f"cuda = ctypes.CDLL({str(built.cuda)!r}); M = ctypes.CDLL({str(built.cupti)!r})\n"
    script += f"ctypes.c_int.in_dll(cuda, 'mock_cuda_active').value = {active}\n"
    script += "print(attach(socket=sys.argv[1], collector=C).state)\n"
    assert ran(built, script, tap.path) == ["active" if active else "waiting"]


@pytest.mark.parametrize(
    ("torch", "present", "found"),
    [
        (None, ["nvidia/cu13/lib/libcupti.so.13"], "nvidia/cu13/lib/libcupti.so.13"),
        (None, ["nvidia/cuda_cupti/lib/libcupti.so.12"], "nvidia/cuda_cupti/lib/libcupti.so.12"),
        (
            "cuda: Optional[str] = '12.8'",
            ["nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.12"],
            "nvidia/cuda_cupti/lib/libcupti.so.12",
        ),
        ("cuda = '13.0'", ["nvidia/cuda_cupti/lib/libcupti.so.12"], None),
        ("cuda: Optional[str] = None", ["nvidia/cu13/lib/libcupti.so.13"], "nvidia/cu13/lib/libcupti.so.13"),
        ("cuda = '13.0'", ["torch/lib/libcupti.so.13"], "torch/lib/libcupti.so.13"),
    ],
)
def test_the_packaged_libcupti_is_that_of_torch_s_cuda(
    tmp_path: Path, torch: str | None, present: list[str], found: str | None
) -> None:
    """An environment that holds CUPTI 12 and 13: the one that torch was built with is loaded."""
    for name in present:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    if torch is not None:
        (tmp_path / "torch").mkdir(exist_ok=True)
        (tmp_path / "torch/version.py").write_text(f"__version__ = '2.9'\n{torch}\n")
    assert packaged_cupti(["", "/nonexistent", str(tmp_path)]) == (tmp_path / found if found else None)
