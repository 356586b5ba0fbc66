"""Print spans as JSON lines, one a span.

FILE is a recording (X.bin, X.bin.xz), a kernel table (X.parquet) or a file of batches (X.spans, which `spanlite
ingest --batches` writes: SpanBatch messages, each behind its length).

examples:
  spanlite cat serve.bin.xz | head -3
  spanlite cat batches.spans --batches
  spanlite cat serve.bin.xz | jq -r 'select(.stage == "prefill") | .kernel' | sort | uniq -c
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spanlite.contract.errors import BatchError, RecordingError

if TYPE_CHECKING:
    from spanlite.contract.batch import Batch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--batches", action="store_true", help="one line a batch: its header, no spans")


def run(args: argparse.Namespace) -> int:
    """0 when all files were read to their ends."""
    for path in args.files:
        _read(path, _print_header if args.batches else _print_spans)
    return 0


def _read(path: Path, show: Callable[[Batch], None]) -> None:
    if path.suffix != ".spans":
        _play(path, show)
        return
    for batch in _batches(path):
        show(batch)


def _batches(path: Path) -> Iterator[Batch]:
    from spanlite.contract.codec import DEFAULT_LIMITS, decode_batch
    from spanlite.contract.delimited import read_delimited

    try:
        with path.open("rb") as stream:
            for value in read_delimited(stream, most_bytes=DEFAULT_LIMITS.message_bytes):
                yield decode_batch(value)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}; name a file that can be read") from error
    except BatchError as error:
        raise RecordingError(f"{path}: {error}; name a file that `spanlite ingest --batches` wrote whole") from error


def _play(path: Path, show: Callable[[Batch], None]) -> None:
    from spanlite.cli.embedded import Embedded, open_source
    from spanlite.pipeline.embedded import Outputs
    from spanlite.pipeline.windows import WindowPolicy

    with Embedded(Outputs(batch=show), policy=WindowPolicy(lateness_ns=None)) as embedded:
        embedded.play(open_source(path))


def _print_spans(batch: Batch) -> None:
    from spanlite.contract.rows import span_rows

    for span in span_rows(batch):
        sys.stdout.write(json.dumps(span) + "\n")


def _print_header(batch: Batch) -> None:
    columns = batch.columns
    header = {
        "producer": batch.producer.hex(),
        "sequence": batch.sequence,
        "session": f"{batch.session:016x}",
        "first_row": batch.first_row,
        "rows": len(columns),
        "emit_unix_ns": batch.emit_ns,
        "resource": dict(batch.resource),
        "gpus": [gpu.uuid for gpu in batch.gpus],
        "kernels": sorted({columns.strings[at] for at in columns.configs["kernel"].tolist()}),
        "traces": len(columns.traces),
    }
    sys.stdout.write(json.dumps(header) + "\n")
