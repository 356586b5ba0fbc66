"""Whom the agent's socket lets in."""

from __future__ import annotations

import grp
import os
from dataclasses import dataclass
from pathlib import Path

from spanlite.contract.errors import UsageError


@dataclass(frozen=True, slots=True)
class Access:
    """Owner alone, or the members of a group as well.

    Attributes:
        gid: the group; None: the owner alone.
    """

    gid: int | None = None

    @classmethod
    def of_group(cls, name: str | None) -> Access:
        """By a group's name or number.

        Raises:
            UsageError: there is no such group.
        """
        if name is None:
            return cls()
        if name.isascii() and name.isdigit():
            return cls(int(name))
        try:
            return cls(grp.getgrnam(name).gr_gid)
        except KeyError as error:
            raise UsageError(f"there is no group {name!r}; name one that traced processes are in") from error

    def apply(self, socket: Path) -> None:
        """Sets mode 0600, or group and mode 0660.

        Raises:
            OSError: the group is not ours to give.
        """
        if self.gid is None:
            socket.chmod(0o600)
        else:
            os.chown(socket, -1, self.gid)
            socket.chmod(0o660)
