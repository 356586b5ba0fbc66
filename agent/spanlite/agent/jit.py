"""Hooks in Triton and torch.compile that tell the agent where each kernel comes from, when it is compiled.

    from spanlite.agent import jit
    jit.install()

attach() does it. Neither library is imported: a hook is set where one is loaded already, and otherwise as soon as the
program imports it. What a hook meets and does not understand it leaves untold: the program compiles as ever.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from spanlite.agent.jit_teller import Teller
from spanlite.agent.kernelsource import INDUCTOR, TRITON, KernelSource, source_hash
from spanlite.runtime import settings
from spanlite.runtime.clock import SystemClock

log = logging.getLogger(__name__)

Tell = Callable[[KernelSource], None]
_OPTIONS = ("num_warps", "num_stages", "num_ctas")
_lock = threading.Lock()
_installed: list[Teller] = []


def install(variables: Mapping[str, str] | None = None) -> bool:
    """Sets the hooks, once; False where SPANLITE_DISABLE=1.

    Args:
        variables: those of docs/collector.md, where they are not the environment's.
    """
    variables = settings.inherited() if variables is None else variables
    if variables.get("SPANLITE_DISABLE") == "1":
        return False
    with _lock:
        if not _installed:
            teller = Teller(variables, SystemClock())
            _installed.append(teller)
            watch("triton.knobs", lambda module: hook_triton(module, teller.tell))
            watch("torch._inductor.runtime.triton_heuristics", lambda module: hook_inductor(module, teller.tell))
    return True


def watch(name: str, loaded: Callable[[ModuleType], None]) -> None:
    """Calls with a module when it has been imported; at once where it is."""
    module = sys.modules.get(name)
    if module is not None:
        loaded(module)
    else:
        sys.meta_path.insert(0, _Watcher(name, loaded))


class _Watcher(MetaPathFinder):
    """Stands before the finders until its module is found."""

    def __init__(self, name: str, loaded: Callable[[ModuleType], None]) -> None:
        self._name, self._loaded = name, loaded

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)  # the others find it now
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self._loaded)
        return spec


class _Telling(Loader):
    """A module's loader, and a word when it has run."""

    def __init__(self, loader: Loader, loaded: Callable[[ModuleType], None]) -> None:
        self._loader, self._loaded = loader, loaded

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        _carefully(self._loaded, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # get_source and the like


def _carefully(function: Callable[..., None], *arguments: Any) -> None:
    """A hook runs in somebody else's compiler: nothing of ours may end that."""
    try:
        function(*arguments)
    except Exception:  # another release of theirs, whatever it changed
        log.debug("a just-in-time kernel is not told of", exc_info=True)


def hook_triton(knobs: ModuleType, tell: Tell) -> None:
    """Triton 3.4 and later: its hook after a compilation, behind the one that is there."""
    before = knobs.runtime.jit_post_compile_hook

    def compiled(*arguments: Any, **said: Any) -> Any:
        _carefully(lambda: tell(of_triton(said["fn"], said["compile"])))
        return before(*arguments, **said) if before is not None else None

    knobs.runtime.jit_post_compile_hook = compiled


def of_triton(info: Any, compiled: Mapping[str, Any]) -> KernelSource:
    """What Triton says of a kernel that it has compiled.

    Args:
        info: JitFunctionInfo: module, name, jit_function.
        compiled: JITHookCompileInfo: key, signature, constants, options.
    """
    function = info.jit_function
    kernel = function.device_caches[compiled["device"]][0].get(compiled["key"])
    code = getattr(function.fn, "__code__", None)
    constants = {_argument(function, path): repr(value) for path, value in (compiled["constants"] or {}).items()}
    return KernelSource(
        name=str(kernel.name) if kernel is not None else str(function.fn.__name__),
        kind=TRITON,
        function=f"{info.module}:{info.name}",
        file=str(code.co_filename) if code is not None else "",
        line=int(function.starting_line_number),
        source=source_hash(function.src),
        key=str(getattr(kernel, "hash", "")),
        config={
            **{key: str(compiled[key]) for key in _OPTIONS if key in compiled},
            "signature": _signature(compiled["signature"]),
            "constants": ",".join(f"{key}={value}" for key, value in sorted(constants.items())),
        },
    )


def _argument(function: Any, path: Any) -> str:
    """The name of an argument that Triton names by its place, (3,)."""
    at = path[0] if isinstance(path, tuple) and path else path
    return str(function.arg_names[at]) if isinstance(at, int) else str(at)


def _signature(types: Mapping[str, Any]) -> str:
    return ",".join(f"{key}:{value}" for key, value in types.items() if value != "constexpr")


def _pairs(sizes: Any) -> str:
    """Sizes by axis; releases before 2.6 have a list."""
    by_axis = sizes.items() if isinstance(sizes, Mapping) else enumerate(sizes)
    return ",".join(f"{key}:{value}" for key, value in sorted(by_axis))


def hook_inductor(heuristics: ModuleType, tell: Tell) -> None:
    """torch.compile: a kernel's autotuner, when it has compiled or fetched its binaries in the program itself."""
    original = heuristics.CachingAutotuner.precompile

    def precompile(self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        # A worker that only fills the cache is another process, whose kernels nobody sees.
        if not (named.get("warm_cache_only") or (arguments and arguments[0])):
            _carefully(lambda: tell(of_inductor(self)))
        return result

    heuristics.CachingAutotuner.precompile = precompile


def of_inductor(tuner: Any) -> KernelSource:
    """What torch.compile knows of one of its kernels; of a Triton function that the program wrote, as Triton would say.

    The hash takes the function's text and the types of its arguments: not the device and not the compilers' versions,
    which the rest of the generated file names.
    """
    function, meta = tuner.fn, tuner.triton_meta
    written = bool(tuner.custom_kernel)
    name = str(function.__name__)
    results = getattr(tuner, "compile_results", None) or []
    signature = _signature(meta.get("signature", {}))
    hints = _pairs(tuner.size_hints or {})
    configs = [result.config for result in results]
    return KernelSource(
        name=name,
        kind=TRITON if written else INDUCTOR,
        function=f"{function.module if written else 'torch.compile'}:{name}",
        file=str(tuner.filename or ""),
        line=int(getattr(function, "starting_line_number", 0)),
        source=source_hash(
            function.src if written else f"{function.src}\n{signature}\n{hints}", "" if written else name
        ),
        key=str(getattr(results[0].kernel, "hash", "")) if results else "",
        config={
            "signature": signature,
            "size_hints": hints,
            **{key: ",".join(str(getattr(one, key)) for one in configs) for key in _OPTIONS[:2] if configs},
        },
    )
