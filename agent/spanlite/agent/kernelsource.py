"""Where just-in-time compiled kernels come from: what a program tells of them, and the name that lasts.

Triton and torch.compile make kernels while the program runs. CUPTI knows them by a name that says little and changes:
`triton_poi_fused_add_3` is `..._4` as soon as the program fuses one kernel more. A hook in the program (agent/jit.py)
tells each kernel's source, and the agent gives spans a name that follows from it.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock

TRITON, INDUCTOR = "triton", "inductor"
MOST_NAMES, MOST_PROCESSES = 4096, 1024
"""Of the agent's table: kernels of a process, processes. What is over keeps CUPTI's name."""
_MOST_CHARS = 1000
_CONFIG = "config."
_NUMBER = re.compile(r"_\d+$")
_KINDS = (TRITON, INDUCTOR)


@dataclass(frozen=True)
class KernelSource:
    """What a program says of one kernel that it compiled.

    Attributes:
        name: as CUPTI reports it.
        kind: TRITON: a function that somebody wrote; INDUCTOR: one that torch.compile wrote, numbered by its graph.
        function: module:qualname.
        file, line: of the function; of INDUCTOR that in torch's cache.
        source: 16 hexadecimal digits of a hash of the text, of INDUCTOR without the number.
        key: of the compiler's cache: text, configuration and compiler.
        config: num_warps, num_stages, the types of arguments, constants.
    """

    name: str
    kind: str
    function: str = ""
    file: str = ""
    line: int = 0
    source: str = ""
    key: str = ""
    config: Mapping[str, str] = field(default_factory=dict)

    def said(self) -> dict[str, str]:
        """As the lines of a KERNEL_SOURCE frame."""
        fixed = {
            "name": self.name,
            "kind": self.kind,
            "function": self.function,
            "file": self.file,
            "line": str(self.line),
            "source": self.source,
            "key": self.key,
        }
        lines = {**fixed, **{_CONFIG + key: value for key, value in self.config.items()}}
        return {key: value[:_MOST_CHARS] for key, value in lines.items() if key == "name" or value}

    @classmethod
    def of(cls, said: Mapping[str, str]) -> KernelSource:
        """The reverse.

        Raises:
            ValueError: it names no kernel, or a value is none.
        """
        name, kind, source, line = (said.get(key, "") for key in ("name", "kind", "source", "line"))
        if not name or kind not in _KINDS or not re.fullmatch("(?:[0-9a-f]{16})?", source):
            raise ValueError(f"a kernel {name[:80]!r} of kind {kind[:80]!r} with source {source[:80]!r}")
        return cls(
            name=name,
            kind=kind,
            function=said.get("function", ""),
            file=said.get("file", ""),
            line=int(line) if line.isascii() and line.isdigit() and len(line) < 10 else 0,
            source=source,
            key=said.get("key", ""),
            config={key.removeprefix(_CONFIG): value for key, value in said.items() if key.startswith(_CONFIG)},
        )

    @property
    def stable_name(self) -> str:
        """A full name that lasts as long as the source does, one-to-one with what CUPTI's name says of it.

        `inductor:triton_poi_fused_add:1f2e3d4c`: the number of the graph gives way to the text's hash.
        `triton:package.module:_kernel`: the module in front; another text is the same kernel, as it is with C++.
        """
        if self.kind == INDUCTOR:
            return f"{INDUCTOR}:{_NUMBER.sub('', self.name)}:{self.source[:8]}" if self.source else self.name
        module = self.function.partition(":")[0]
        return f"{TRITON}:{module}:{self.name}" if module else self.name


def source_hash(text: str, name: str = "") -> str:
    """16 hexadecimal digits of a text; the name of a numbered kernel counts in it without the number."""
    stable = re.sub(rf"\b{re.escape(name)}\b", _NUMBER.sub("", name), text) if name else text
    return hashlib.blake2b(stable.encode("utf-8", "replace"), digest_size=8).hexdigest()


class SourceTable:
    """The agent's: sources of each process's kernels. Any thread."""

    def __init__(self, *, most_names: int = MOST_NAMES, most_processes: int = MOST_PROCESSES) -> None:
        self._most_names, self._most_processes = most_names, most_processes
        self._lock = Lock()
        self._processes: OrderedDict[int, dict[str, str | None]] = OrderedDict()

    def begin(self, pid: int) -> None:
        """A process says hello: what another with its number said is forgotten."""
        with self._lock:
            self._processes[pid] = {}
            self._processes.move_to_end(pid)
            while len(self._processes) > self._most_processes:
                self._processes.popitem(last=False)

    def tell(self, pid: int, source: KernelSource) -> bool:
        """Takes what a process said; False where there is no room.

        A name that two sources share, as two graphs may both have a `triton_poi_fused_add_0`, tells them apart no more:
        it stays as CUPTI gives it.
        """
        with self._lock:
            names = self._processes.setdefault(pid, {})
            if source.name not in names and len(names) >= self._most_names:
                return False
            known = names.setdefault(source.name, source.stable_name)
            if known != source.stable_name:
                names[source.name] = None
            return True

    def of(self, pid: int) -> Callable[[str], str]:
        """Gives the lasting name of a kernel of a process; the name itself where nobody told of it."""

        def stable(name: str) -> str:
            names = self._processes.get(pid)
            return (names.get(name) if names else None) or name

        return stable
