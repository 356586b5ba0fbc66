"""What files an archive has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spanlite.pipeline.archive.layout import partitions, split_files
from spanlite.pipeline.archive.schema import open_file


@dataclass(frozen=True, slots=True)
class Entry:
    """One file.

    Attributes:
        replaced: its spans lie in a compacted file as well; readers leave it out.
    """

    path: Path
    spans: int
    bytes: int
    row_groups: int
    replaced: bool


def list_files(root: Path | str) -> list[Entry]:
    """Every file, in the order of time.

    Raises:
        ArchiveError: no such folder, or a file that is not of an archive.
    """
    entries = []
    for folder in partitions(Path(root)):
        live, replaced = split_files(folder)
        for path in sorted((*live, *replaced)):
            with open_file(path) as file:
                size, facts = path.stat().st_size, file.metadata
                entries.append(Entry(path, facts.num_rows, size, facts.num_row_groups, path in replaced))
    return entries
