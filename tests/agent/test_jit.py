"""Hooks of just-in-time compilers: imitations of their protocols, and the real Triton where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from spanlite.agent import jit
from spanlite.agent.frames import Frame, unpack_text
from spanlite.agent.jit_teller import Teller
from spanlite.agent.kernelsource import KernelSource, source_hash
from spanlite.runtime.clock import SystemClock
from tests.agent.collector.program import until
from tests.agent.collector.tap import Tap


@pytest.fixture
def tap() -> Iterator[Tap]:
    with tempfile.TemporaryDirectory() as folder:
        listener = Tap(Path(folder) / "agent.sock")
        yield listener
        listener.stop()


def body() -> None:
    """In place of a kernel."""


def triton_knobs(before: Callable[..., Any] | None = None) -> Any:
    module = ModuleType("triton.knobs")
    module.runtime = SimpleNamespace(jit_post_compile_hook=before)  # type: ignore[attr-defined]
    return module


def triton_call() -> dict[str, Any]:
    """What Triton 3.6 calls its hook with."""
    kernel = SimpleNamespace(name="_add_bf16", hash="cafe")
    function = SimpleNamespace(
        fn=body,
        src="def _add(x, y, N, BLOCK): pass",
        starting_line_number=12,
        arg_names=["x", "y", "N", "BLOCK"],
        device_caches=defaultdict(lambda: ({"key": kernel}, {}, None, None, None)),
    )
    info = SimpleNamespace(module="kernels.add", name="make.<locals>._add", jit_function=function)
    compiled = {
        "key": "key",
        "device": 0,
        "signature": {"x": "*bf16", "y": "*bf16", "N": "i32", "BLOCK": "constexpr"},
        "constants": {(3,): 1024},
        "num_warps": 4,
        "num_stages": 3,
        "num_ctas": 1,
    }
    return {"key": "key", "repr": "", "fn": info, "compile": compiled, "is_manual_warmup": False}


def test_triton_says_function_place_and_configuration() -> None:
    """Everything that the hook is given, under the name that the binary has."""
    told: list[KernelSource] = []
    knobs = triton_knobs()
    jit.hook_triton(knobs, told.append)
    assert knobs.runtime.jit_post_compile_hook(**triton_call()) is None
    assert told == [
        KernelSource(
            name="_add_bf16",
            kind="triton",
            function="kernels.add:make.<locals>._add",
            file=__file__,
            line=12,
            source=source_hash("def _add(x, y, N, BLOCK): pass"),
            key="cafe",
            config={
                "num_warps": "4",
                "num_stages": "3",
                "num_ctas": "1",
                "signature": "x:*bf16,y:*bf16,N:i32",
                "constants": "BLOCK=1024",
            },
        )
    ]


def test_a_hook_that_was_there_is_asked_and_answers() -> None:
    """Triton has one place for it: whoever stood there still hears everything and decides."""
    seen: list[str] = []

    def before(**said: Any) -> str:
        seen.append(said["key"])
        return "theirs"

    told: list[KernelSource] = []
    knobs = triton_knobs(before)
    jit.hook_triton(knobs, told.append)
    assert knobs.runtime.jit_post_compile_hook(**triton_call()) == "theirs"
    assert seen == ["key"]
    assert [source.name for source in told] == ["_add_bf16"]


def test_a_release_that_says_something_else_compiles_all_the_same() -> None:
    """A missing value, another shape: nothing is told, nothing is raised."""
    told: list[KernelSource] = []
    knobs = triton_knobs()
    jit.hook_triton(knobs, told.append)
    assert knobs.runtime.jit_post_compile_hook(fn=None, compile={}) is None
    assert told == []


class CachingAutotuner:
    """torch.compile's, as far as it is asked."""

    def __init__(self, name: str, *, custom: bool = False) -> None:
        text = f"def {name}(in_ptr0, xnumel, XBLOCK):\n    xnumel = 4096\n"
        self.fn = SimpleNamespace(__name__=name, src=text, module="model.kernels", starting_line_number=18)
        self.triton_meta = {"signature": {"in_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}, "device": 0}
        self.custom_kernel = custom
        self.size_hints = {"x": 4096}
        self.filename = "/tmp/torchinductor_me/ab/cabc.py"  # noqa: S108  # where torch would write
        self.compile_results: list[Any] = []

    def precompile(self, warm_cache_only: bool = False) -> str:
        if warm_cache_only:
            return "cached"
        configs = [SimpleNamespace(num_warps=warps, num_stages=1) for warps in (4, 8)]
        self.compile_results = [SimpleNamespace(config=one, kernel=SimpleNamespace(hash="beef")) for one in configs]
        return "compiled"


def inductor_module() -> Any:
    module = ModuleType("torch._inductor.runtime.triton_heuristics")
    module.CachingAutotuner = type("CachingAutotuner", (CachingAutotuner,), {})  # type: ignore[attr-defined]
    return module


def test_torch_compile_s_kernels_are_told_once_their_binaries_are_there() -> None:
    """By the program itself, not by a worker that fills the cache; the number is not part of what lasts."""
    told: list[KernelSource] = []
    heuristics = inductor_module()
    jit.hook_inductor(heuristics, told.append)
    for number in (3, 4):
        tuner = heuristics.CachingAutotuner(f"triton_poi_fused_add_{number}")
        assert tuner.precompile(warm_cache_only=True) == "cached"
        assert tuner.precompile() == "compiled"
    assert [source.name for source in told] == ["triton_poi_fused_add_3", "triton_poi_fused_add_4"]
    assert len({source.stable_name for source in told}) == 1
    text = "def triton_poi_fused_add(in_ptr0, xnumel, XBLOCK):\n    xnumel = 4096\n\nin_ptr0:*fp32,xnumel:i32\nx:4096"
    assert told[0] == KernelSource(
        name="triton_poi_fused_add_3",
        kind="inductor",
        function="torch.compile:triton_poi_fused_add_3",
        file="/tmp/torchinductor_me/ab/cabc.py",  # noqa: S108  # where torch would write
        line=18,
        source=source_hash(text),
        key="beef",
        config={
            "signature": "in_ptr0:*fp32,xnumel:i32",
            "size_hints": "x:4096",
            "num_warps": "4,8",
            "num_stages": "1,1",
        },
    )


def test_a_written_kernel_within_torch_compile_is_its_author_s() -> None:
    """Same label as without torch.compile."""
    source = jit.of_inductor(CachingAutotuner("_add", custom=True))
    assert (source.kind, source.stable_name) == ("triton", "triton:model.kernels:_add")


def test_a_module_that_comes_later_is_hooked_when_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """attach() before `import torch`: the module runs first, then the hook, once; its own loader shows afterwards."""
    (tmp_path / "later_module_for_jit.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    seen: list[int] = []
    jit.watch("later_module_for_jit", lambda module: seen.append(module.value))
    assert seen == []
    module = importlib.import_module("later_module_for_jit")
    assert seen == [1]
    assert sys.meta_path == before
    assert module.__spec__ is not None
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    jit.watch("later_module_for_jit", lambda module: seen.append(module.value + 1))
    assert seen == [1, 2]
    del sys.modules["later_module_for_jit"]


def test_a_module_that_never_comes_costs_its_import_error_alone() -> None:
    """A program without torch asks for it and is told no, as ever."""
    told: list[ModuleType] = []
    jit.watch("no_such_module_for_jit", told.append)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_for_jit")
    assert told == []
    assert not [one for one in sys.meta_path if isinstance(one, jit._Watcher) and one._name == "no_such_module_for_jit"]


def test_the_agent_is_told_and_a_later_one_told_again(tap: Tap) -> None:
    """HELLO without CUPTI, then one frame a kernel; an agent that restarts hears all of it, each once."""
    teller = Teller({"SPANLITE_SOCKET": str(tap.path)}, SystemClock())
    sources = [KernelSource(name=f"k{at}", kind="triton", function="m:k", source="0" * 16) for at in range(3)]
    for source in (*sources, sources[0]):
        teller.tell(source)

    def said(listener: Tap) -> list[KernelSource]:
        frames = listener.connections[0].of(Frame.KERNEL_SOURCE) if listener.connections else []
        return [KernelSource.of(unpack_text(payload)) for payload in frames]

    until(lambda: len(said(tap)) == 3, "three kernels")
    assert said(tap) == sources
    assert tap.connections[0].hello.keys() == {"cupti_version", "session"}
    assert tap.connections[0].hello["cupti_version"] == "0"
    path = tap.path
    tap.stop()
    again = Tap(path)
    until(lambda: len(said(again)) == 3, "three kernels again")
    teller.stop()
    again.stop()
    tap.__init__(path)  # type: ignore[misc]  # for the fixture to stop


def test_the_kill_switch_sets_no_hook() -> None:
    """SPANLITE_DISABLE=1."""
    before = list(sys.meta_path)
    assert jit.install({"SPANLITE_DISABLE": "1"}) is False
    assert sys.meta_path == before


_REAL = """
import sys
from spanlite.agent import jit
jit.install()
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile, make_backend
sys.path.insert(0, sys.argv[1])
from real_kernels import add
target = GPUTarget("cuda", 90, 32)
backend = make_backend(target)
kernels = {}
old = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 5)
add.device_caches[0] = (kernels, target, backend, None) if old else (kernels, {}, target, backend, None)
options = backend.parse_options({"num_warps": 4})
signature, constants = {"x": "*fp32", "N": "i32", "BLOCK": "constexpr"}, {(2,): 128}
if hasattr(add, "_do_compile"):
    add.ASTSource, add.compile = ASTSource, compile
    add._do_compile("key", signature, 0, constants, options, {}, True)
else:  # what JITFunction.run does, which asks a driver for the device
    kernels["key"] = compile(ASTSource(add, signature, constants, {}), target=target, options=options.__dict__)
    hook = triton.knobs.runtime.jit_post_compile_hook
    add._call_hook(hook, "key", signature, 0, constants, options, [{}], True)
print("compiled", flush=True)
sys.stdin.read()
"""


def test_the_real_triton_tells(tap: Tap, tmp_path: Path) -> None:
    """Compiles for an H100 without a GPU: the name is that of the binary, place and text those of the file."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        pytest.skip("needs the package triton")
    (tmp_path / "real_kernels.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def add(x, N, BLOCK: tl.constexpr):\n    at = tl.arange(0, BLOCK)\n    tl.store(x + at, 1.0, mask=at < N)\n"
    )
    environment = {
        "PATH": os.defpath,
        "SPANLITE_SOCKET": str(tap.path),
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(Path(found.origin).parents[1]),
    }
    command = [sys.executable, "-c", _REAL, str(tmp_path)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "compiled\n":
            raise AssertionError(process.communicate()[1])
        until(lambda: bool(tap.connections and tap.connections[0].of(Frame.KERNEL_SOURCE)), "a kernel")
    finally:
        process.kill()
        process.communicate()
    source = KernelSource.of(unpack_text(tap.connections[0].of(Frame.KERNEL_SOURCE)[0]))
    assert (source.name, source.function, source.line) == ("add", "real_kernels:add", 5)
    assert source.config["num_warps"] == "4"
    assert source.config["constants"] == "BLOCK=128"
    assert len(source.key) == 64
