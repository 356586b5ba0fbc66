"""Facts in the footer of a Parquet file, beside its columns; PyFlink's pyarrow has no call for that yet."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any

import pyarrow.parquet as pq

from spanlite.pipeline.archive.schema import FORMAT, FORMAT_KEY, SCHEMA, file_schema

_TAIL = 8
"""Bytes behind the footer: its length, and the magic word."""


def write_parquet(file: Any, tables: Iterable[Any], options: dict[str, Any], facts: dict[str, str]) -> None:
    """Writes tables of `file_schema()`, each as a row group.

    Args:
        file: binary, to read and write, empty; it stays open.
        tables: Arrow tables.
        options: of `writer_options`.
        facts: for the footer, beside the archive's revision.
    """
    facts = {FORMAT_KEY.decode(): FORMAT, **facts}
    known = hasattr(pq.ParquetWriter, "add_key_value_metadata")
    footers: list[Any] = []
    with pq.ParquetWriter(file, file_schema(), metadata_collector=footers, **options) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(len(table), 1))
        if known:
            writer.add_key_value_metadata(facts)
    if not known:
        _replace_footer(file, footers[0], facts)


def _replace_footer(file: Any, footer: Any, facts: dict[str, str]) -> None:
    """Before pyarrow 17: the facts come with the footer of an empty file, and the row groups are added to that."""
    empty = BytesIO()
    pq.ParquetWriter(empty, SCHEMA.with_metadata(facts)).close()
    empty.seek(0)
    whole = pq.read_metadata(empty)
    whole.append_row_groups(footer)
    written = BytesIO()
    whole.write_metadata_file(written)
    file.seek(-_TAIL, 2)
    length = int.from_bytes(file.read(4), "little")
    file.seek(-_TAIL - length, 2)
    file.truncate()
    file.write(written.getvalue()[4:])  # without the magic word that begins a file
