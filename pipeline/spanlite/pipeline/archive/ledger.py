"""What of a partition is archived already, by producer: read from footers once, then kept up by the writer."""

from __future__ import annotations

from collections import OrderedDict

from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.layout import COMPACT_PREFIX, producer_prefix
from spanlite.pipeline.archive.port import Store, label
from spanlite.pipeline.archive.provenance import Provenance, Ranges, read_provenance, union
from spanlite.pipeline.archive.snapshot import is_visible, settled

FOLDERS = 4096
_TRIES = 20


class Ledger:
    """Batches that have their rows of a partition in a visible file, by partition and producer.

    It belongs to one run of one writer on one store: whoever starts again, after whatever end, starts with a new one.
    What it knows stays true while compactions run, since a compacted file holds what its inputs held.

    Precondition: nobody else writes files of the producers that it is asked for, since it looks only once.
    """

    def __init__(self, *, folders: int = FOLDERS) -> None:
        """Takes the number of partitions to remember; those not asked for the longest are read anew when needed."""
        self._known: OrderedDict[str, Provenance] = OrderedDict()
        self._folders = folders

    def held(self, store: Store, folder: str, producer: bytes) -> Ranges:
        """Sequences of a producer's batches that are archived in a partition; to read, not to change.

        Raises:
            ArchiveError: the store cannot be listed, or a file is unreadable.
        """
        known = self._known.setdefault(folder, {})
        self._known.move_to_end(folder)
        while len(self._known) > self._folders:
            self._known.popitem(last=False)
        if producer not in known:
            known[producer] = _read(store, folder, producer)
        return known[producer]

    def note(self, folder: str, producer: bytes, written: Ranges) -> None:
        """Adds what has just been written; of what is not known, footers will tell."""
        known = self._known.get(folder, {})
        if producer in known:
            known[producer].update(written)

    def forget(self, folder: str) -> None:
        """Drops what is known of a partition: a write into it failed, and may have succeeded all the same."""
        self._known.pop(folder, None)


def _read(store: Store, folder: str, producer: bytes) -> Ranges:
    prefixes = (COMPACT_PREFIX, producer_prefix(producer))
    for _ in range(_TRIES):
        files = [file for file in settled(store, folder) if is_visible(file) and file.base.startswith(prefixes)]
        try:
            found = union(read_provenance(store, file.name) for file in files)
        except FileNotFoundError:  # compacted away since it was listed
            continue
        if files:
            store.settle(folder)  # what counts as archived must outlive the machine's next moment
        return found.get(producer, Ranges())
    raise ArchiveError(f"{label(store, folder)}: its files go faster than they can be read; try again")
