"""Columns of the archive: names, types and units. docs/archive.md describes them; they are a stable contract.

Ids are un-mixed: `span_id` is the number of the span within its `session` (rows 0, 1, 2, …; ranges 2^63 + their
number), since numbers in order cost nothing where hashed ids cost eight bytes a span. `mix64(session ^ span_id)` is the
id on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spanlite.contract.columns import Kind, Limiter, SamplingMode
from spanlite.contract.errors import ArchiveError
from spanlite.pipeline.archive.port import Store, label, path_of

FORMAT = "1"
"""Revision of the columns; it rises only when the meaning of a column changes."""
FORMAT_KEY = b"spanlite.format"
BUCKETS_KEY = b"spanlite.buckets"
REPLACES_KEY = b"spanlite.replaces"
"""Footer of a compacted file: JSON list of the file names, in the same folder, whose rows it holds."""
BATCHES_KEY = b"spanlite.batches"
"""Footer of every file: JSON object, producer in hex → ranges [first, last] of the batches that have rows in it."""

KIND_NAMES = {kind.value: kind.name.lower() for kind in Kind}
LIMITER_NAMES = {limit.value: limit.name.lower() for limit in Limiter}
SAMPLING_NAMES = {mode.value: mode.name.lower() for mode in SamplingMode}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: as in the file.
        type: Arrow type as readers see it.
        source: table that holds its values (config, place, node, trace, batch), or "row".
        nullable: whether null is a value.
        encoding: Parquet encoding where the writer does not use a dictionary.
    """

    name: str
    type: Any
    source: str
    nullable: bool = False
    encoding: str = "DICTIONARY"


_ID = pa.binary(16)
_TEXT = pa.string()
_DELTA = "DELTA_BINARY_PACKED"
_PLAIN = "PLAIN"

COLUMNS: tuple[Column, ...] = (
    Column("start_ns", pa.int64(), "row", encoding=_DELTA),
    Column("duration_ns", pa.int64(), "row", encoding=_PLAIN),
    Column("kind", _TEXT, "row"),
    Column("kernel", _TEXT, "config"),
    Column("name", _TEXT, "config"),
    Column("stage", _TEXT, "row", nullable=True),
    Column("trace_id", _ID, "trace", nullable=True),
    Column("span_id", pa.uint64(), "row", encoding=_DELTA),
    Column("parent_span_id", pa.uint64(), "row", nullable=True, encoding=_DELTA),
    Column("session", pa.uint64(), "batch"),
    Column("trace_start_ns", pa.int64(), "trace"),
    Column("trace_remote_parent", pa.uint64(), "trace"),
    Column("gpu_uuid", _TEXT, "place", nullable=True),
    Column("gpu_name", _TEXT, "place", nullable=True),
    Column("compute_capability", _TEXT, "place", nullable=True),
    Column("gpu", pa.int32(), "place"),
    Column("device_id", pa.uint32(), "place"),
    Column("context_id", pa.uint32(), "place"),
    Column("stream_id", pa.uint32(), "place"),
    Column("channel_id", pa.uint32(), "place"),
    Column("channel_type", pa.int32(), "place"),
    Column("priority", pa.int32(), "place"),
    Column("thread_id", pa.uint64(), "place"),
    Column("correlation_id", pa.int64(), "row", encoding=_DELTA),
    Column("graph_id", pa.uint32(), "node"),
    Column("graph_node_id", pa.uint64(), "node"),
    *(Column(f"{what}_{axis}", pa.uint32(), "config") for what in ("grid", "block", "cluster") for axis in "xyz"),
    Column("registers_per_thread", pa.uint32(), "config"),
    Column("static_shared_memory", pa.uint32(), "config"),
    Column("dynamic_shared_memory", pa.uint32(), "config"),
    Column("shared_memory_executed", pa.uint32(), "config"),
    Column("local_memory_per_thread", pa.uint32(), "config"),
    Column("launch_type", pa.uint32(), "config"),
    Column("copy_kind", pa.uint32(), "config"),
    Column("active_warps", pa.uint32(), "config"),
    Column("max_warps", pa.uint32(), "config"),
    Column("theoretical_occupancy", pa.float64(), "config", nullable=True),
    Column("occupancy_limiter", _TEXT, "config", nullable=True),
    Column("bytes", pa.int64(), "row"),
    Column("weight", pa.uint32(), "row"),
    Column("host", _TEXT, "batch", nullable=True),
    Column("pid", _TEXT, "batch", nullable=True),
    Column("namespace", _TEXT, "batch", nullable=True),
    Column("pod", _TEXT, "batch", nullable=True),
    Column("container", _TEXT, "batch", nullable=True),
    Column("workload", _TEXT, "batch", nullable=True),
    Column("sampling", _TEXT, "batch"),
    Column("producer", _ID, "batch"),
    Column("batch_sequence", pa.uint64(), "batch"),
    Column("session_row", pa.uint64(), "row", encoding=_DELTA),
    Column("emit_ns", pa.int64(), "batch"),
    Column("batch_info", _TEXT, "batch"),
)
BY_NAME = {column.name: column for column in COLUMNS}
SCHEMA = pa.schema([pa.field(column.name, column.type, nullable=column.nullable) for column in COLUMNS])
"""What any reader sees; folders add `date`, `hour` and `bucket`."""
STATISTICS = ["start_ns", "duration_ns", "trace_start_ns", "batch_sequence"]
"""Columns with minimum and maximum per row group, so that queries skip; the others have them where both are one."""
RESOURCE_COLUMNS = {
    "host": "host.name",
    "pid": "process.pid",
    "namespace": "k8s.namespace.name",
    "pod": "k8s.pod.name",
    "container": "k8s.container.name",
    "workload": "workload",
}
"""Column and the OpenTelemetry resource name that fills it."""
TEXT_COLUMNS = [column.name for column in COLUMNS if column.type in (_TEXT, _ID)]


def file_schema() -> Any:
    """Schema of tables handed to the writer: texts and ids as Arrow dictionaries."""
    return pa.schema([pa.field(c.name, _dictionary_type(c), nullable=c.nullable) for c in COLUMNS])


def _dictionary_type(column: Column) -> Any:
    return pa.dictionary(pa.int32(), column.type) if column.name in TEXT_COLUMNS else column.type


def writer_options(constant: Iterable[str], single: Iterable[str] = ()) -> dict[str, Any]:
    """Options of pyarrow.parquet.ParquetWriter.

    Args:
        constant: numeric columns with one value in the whole file: plain pages of one value compress to nothing and
            are written three times as fast as a dictionary.
        single: further columns with one value, or null, in the whole file. Statistics say so of all these, so that
            readers need not decode them.
    """
    plain = set(constant)
    encoded = {c.name: c.encoding for c in COLUMNS if c.encoding != "DICTIONARY"}
    return {
        "compression": "zstd",
        "compression_level": 3,
        # Encodings other than a dictionary hold only for columns without one.
        "use_dictionary": [c.name for c in COLUMNS if c.name not in encoded and c.name not in plain],
        "column_encoding": encoded,
        "write_statistics": list(dict.fromkeys([*STATISTICS, *plain, *single])),
        "store_schema": False,  # else pyarrow alone would see dictionaries where all others see texts
        "dictionary_pagesize_limit": 1 << 26,  # names can be long: a fallback to plain would repeat them on each row
    }


def check_schema(where: str, schema: Any, facts: dict[bytes, bytes]) -> None:
    """Holds a file's columns against SCHEMA, and the revision in its footer against FORMAT.

    Raises:
        ArchiveError: the file is not of an archive, or of a newer revision.
    """
    revision = facts.get(FORMAT_KEY, FORMAT.encode()).decode("ascii", "replace")
    if revision != FORMAT:
        raise ArchiveError(f"{where}: archive revision {revision}; this version reads {FORMAT}")
    missing = [name for name in BY_NAME if name not in schema.names]
    if missing:
        raise ArchiveError(
            f"{where}: not a file of a spanlite archive: column {missing[0]!r} is missing"
            f"{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}; point to a folder written by spanlite"
        )
    for name, column in BY_NAME.items():
        found = schema.field(name).type
        if pa.types.is_dictionary(found):
            found = found.value_type
        if found != column.type:
            raise ArchiveError(f"{where}: column {name!r} is {found}, an archive has {column.type} there")


def open_file(store: Store, name: str) -> Any:
    """A pyarrow ParquetFile whose columns are those of an archive; texts come as Arrow dictionaries.

    Raises:
        ArchiveError: gone, unreadable, not Parquet, or foreign.
    """
    path = path_of(store, name)
    try:
        footer = pq.read_metadata(path, filesystem=store.filesystem)
        check_schema(label(store, name), footer.schema.to_arrow_schema(), footer.metadata or {})
        return pq.ParquetFile(
            path,
            filesystem=store.filesystem,
            metadata=footer,
            read_dictionary=TEXT_COLUMNS,
            pre_buffer=store.remote,
        )
    except (OSError, pa.ArrowException) as error:
        raise unreadable(store, name, error) from error


def read_facts(store: Store, name: str) -> dict[bytes, bytes]:
    """What a file's footer says beside its columns.

    Raises:
        FileNotFoundError: it is not there (any more).
        ArchiveError: it is unreadable or not Parquet.
    """
    try:
        return pq.read_metadata(path_of(store, name), filesystem=store.filesystem).metadata or {}
    except (OSError, pa.ArrowException) as error:
        if is_gone(error):
            raise FileNotFoundError(label(store, name)) from error
        raise unreadable(store, name, error) from error


def is_gone(error: BaseException) -> bool:
    """Whether a file is not there any more; an object may go between the question for its size and its reading."""
    return isinstance(error, FileNotFoundError) or "NO_SUCH_KEY" in str(error)


def unreadable(store: Store, name: str, error: BaseException) -> ArchiveError:
    """What to say of a file that is no whole Parquet, or that has gone since it was listed."""
    if is_gone(error):
        return ArchiveError(f"{label(store, name)}: has gone since it was listed; a compaction is running: read again")
    return ArchiveError(f"{label(store, name)}: cannot be read as Parquet ({error}); remove it or restore it")
