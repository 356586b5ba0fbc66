"""What one connection says of just-in-time kernels, and what another of the same process is to call them."""

from __future__ import annotations

from spanlite.agent.frames import unpack_text
from spanlite.agent.kernelsource import KernelSource, SourceTable
from spanlite.contract.errors import FrameError


class ProcessSources:
    """A connection's view of the agent's table.

    Args:
        pid: of the peer, as the kernel says it.
    """

    def __init__(self, table: SourceTable, pid: int) -> None:
        self._table, self._pid = table, pid
        self._begun = False
        self.lasting = table.of(pid)
        """Gives the name that a kernel of the process keeps when it is compiled anew; else the name itself."""

    def take(self, payload: bytes) -> None:
        """A KERNEL_SOURCE frame; the first of a connection forgets what another process with this number said.

        Raises:
            FrameError: reason kernel_source, of a frame that names no kernel.
        """
        try:
            source = KernelSource.of(unpack_text(payload))
        except ValueError as error:
            raise FrameError("kernel_source", f"KERNEL_SOURCE says no kernel: {error}") from error
        if not self._begun:
            self._begun = True
            self._table.begin(self._pid)
        self._table.tell(self._pid, source)
