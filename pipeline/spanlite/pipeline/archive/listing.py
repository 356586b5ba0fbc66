"""What files an archive has."""

from __future__ import annotations

from dataclasses import dataclass

from spanlite.pipeline.archive.schema import open_file
from spanlite.pipeline.archive.snapshot import partitions, split_files
from spanlite.pipeline.archive.store import Where, open_store


@dataclass(frozen=True, slots=True)
class Entry:
    """One file.

    Attributes:
        name: relative to the archive.
        replaced: its spans lie in a compacted file as well; readers leave it out.
    """

    name: str
    spans: int
    bytes: int
    row_groups: int
    replaced: bool


def list_files(root: Where) -> list[Entry]:
    """Every file, in the order of time.

    Raises:
        ArchiveError: no such folder, or a file that is not of an archive.
    """
    store = open_store(root)
    entries = []
    for listed in partitions(store).values():
        live, replaced = split_files(store, listed)
        for file in sorted((*live, *replaced)):
            with open_file(store, file.name) as opened:
                facts = opened.metadata
                entries.append(Entry(file.name, facts.num_rows, file.size, facts.num_row_groups, file in replaced))
    return entries
