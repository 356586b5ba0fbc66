"""The schema: generated code is what the .proto files give, loads here, and old readers can live with the new files."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "proto"
SOURCES = sorted(PROTO.glob("spanlite/v1/*.proto"))
BASELINE = ROOT / "tests/golden/span_v1.binpb"
BUF = Path(sys.executable).with_name("buf")

needs_buf = pytest.mark.skipif(not BUF.exists(), reason="buf is one of the development tools")


def buf(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs buf on the module in `folder`."""
    return subprocess.run([BUF, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_committed_code_is_what_the_schema_generates(tmp_path: Path) -> None:
    """Regenerating every .proto file gives the committed _pb2.py and .pyi files, byte for byte."""
    pytest.importorskip("grpc_tools", reason="the generator is one of the development tools")
    out = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTO}", *out, *map(str, SOURCES)]
    subprocess.run(command, check=True, capture_output=True)
    made = {str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.rglob("*_pb2.py*")}
    committed = {str(file.relative_to(PROTO)): file.read_bytes() for file in PROTO.rglob("*_pb2.py*") if file.is_file()}
    committed = {name: data for name, data in committed.items() if not name.endswith(".pyc")}
    assert len(made) == 2 * len(SOURCES)
    assert made.keys() == committed.keys()
    assert [name for name in made if made[name] != committed[name]] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.stem))
def test_generated_code_loads_on_the_installed_protobuf(source: Path) -> None:
    """Each module imports without a warning and serves the messages of its own file."""
    module = importlib.import_module(f"spanlite.v1.{source.stem}_pb2")
    assert module.DESCRIPTOR.package == "spanlite.v1"
    assert set(module.DESCRIPTOR.message_types_by_name) == {
        line.split()[1] for line in source.read_text("utf-8").splitlines() if line.startswith("message ")
    }


def test_generated_code_speaks_the_wire_format() -> None:
    """A record's bytes are those that the protobuf encoding rules give for the field numbers of span.proto."""
    span_pb2 = importlib.import_module("spanlite.v1.span_pb2")
    span = span_pb2.SpanLite(trace_id=b"\x01" * 16, start_unix_ns=-2, duration_ns=300)
    wire = b"\x0a\x10" + b"\x01" * 16 + b"\x29" + b"\xfe" + b"\xff" * 7 + b"\x30\xac\x02"
    assert span.SerializeToString() == wire
    assert span_pb2.SpanLite.FromString(wire) == span


@needs_buf
def test_schema_passes_the_linter() -> None:
    """buf finds nothing to say under the rules of proto/buf.yaml."""
    done = buf("lint", folder=PROTO)
    assert (done.returncode, done.stdout) == (0, "")


@needs_buf
def test_schema_stays_compatible_with_the_baseline() -> None:
    """Whoever reads or writes by the frozen schema can live with today's."""
    done = buf("breaking", "--against", BASELINE, folder=PROTO)
    assert (done.returncode, done.stdout) == (0, "")


@needs_buf
@pytest.mark.parametrize(
    ("file", "before", "after", "complaint"),
    [
        ("point.proto", "  uint64 spans = 6;\n", "", 'Previously present field "6" with name "spans" on message'),
        ("span.proto", "uint32 weight = 16;", "uint64 weight = 16;", "changed type"),
        ("batch.proto", "  bytes producer = 2;", "  bytes producer = 200;", 'Previously present field "2"'),
    ],
)
def test_breaking_changes_are_noticed(tmp_path: Path, file: str, before: str, after: str, complaint: str) -> None:
    """A removed, retyped or renumbered field in a copy of the schema fails against the baseline."""
    copy = tmp_path / "proto"
    shutil.copytree(PROTO, copy, ignore=shutil.ignore_patterns("__pycache__"))
    source = copy / "spanlite/v1" / file
    text = source.read_text("utf-8")
    assert text.count(before) == 1
    source.write_text(text.replace(before, after), "utf-8")
    done = buf("breaking", "--against", BASELINE, folder=copy)
    assert done.returncode != 0
    assert complaint in done.stdout
