"""An archive on a replay topic: a job that works on it tells the points of the embedded backtest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spanlite.cli.main import main
from tests.replay.archives import write_archive

if TYPE_CHECKING:
    from tests.stack.flink import Flink
    from tests.stack.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
WINDOWS = ("--window", "1s", "--lateness", "500ms", "--idle", "3s", "--emit", "500ms")
PRODUCERS = 2


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded run by each of two processes with a GPU of its own."""
    from tests.stack import load

    batches = [message.batch for message in load.messages(PRODUCERS, 1)]
    return write_archive(tmp_path_factory.mktemp("archive"), batches, buckets=2)


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """A cluster with room for one job."""
    from tests.stack.cluster import VENV
    from tests.stack.flink import Flink

    if not VENV.exists():
        pytest.skip("PyFlink is not installed: make flink-venv")
    with Flink(tmp_path_factory.mktemp("flink"), venv=VENV, slots=3) as cluster:
        yield cluster


def emitted(kafka: Kafka, archive: Path, name: str) -> str:
    """Prefix of the topics to which the archive was emitted."""
    words = ("--runner", "kafka", "--bootstrap", kafka.bootstrap, "--prefix", name, "-q")
    assert main(["backtest", "run", str(archive), *words]) == 0
    return f"spanlite.replay.{name}"


class Judge:
    """Compares what lies on the broker, by the command."""

    def __init__(self, kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = kafka.bootstrap
        self._capsys = capsys

    def diff(self, topic: str, *words: str | Path) -> tuple[int, str, str]:
        """Exit code and what was said of a comparison with a topic."""
        self._capsys.readouterr()
        code = main(["backtest", "diff", f"kafka:{topic}", *map(str, words), "--bootstrap", self._bootstrap])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def assert_same(self, prefix: str, archive: Path, folder: Path) -> None:
        """The topic's points are those of the archive, in windows of any width; and others are found to be others."""
        code, out, err = self.diff(f"{prefix}.points", "--archive", archive)
        assert (code, err) == (0, ""), out
        assert out.startswith("series, cumulative: ")
        assert int(out.split()[2]) > 60 * PRODUCERS
        part = folder / "part.bin"
        assert main(["backtest", "run", str(archive), "-o", str(part), "--window", "1s", "--stage", "decode"]) == 0
        code, out, _ = self.diff(f"{prefix}.points", part)
        assert code == 1
        assert f" 0 only in {part}" in out


def test_the_runner_over_kafka_tells_the_backtests_points(
    kafka: Kafka, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The archive on its topic would be other spans, or its points be read from a topic as others."""
    prefix, judge = emitted(kafka, archive, "one"), Judge(kafka, capsys)
    for topic, said in (("points", "no point in it"), ("spans", "is no point"), ("nothing", "nothing")):
        code, out, err = judge.diff(f"{prefix}.{topic}", "--archive", archive)
        assert (code, out) == (2, ""), "1 would say that they differ"
        assert said in err
    words = ("--bootstrap", kafka.bootstrap, "--prefix", prefix, "--state", str(tmp_path / "state.db"))
    assert main(["pipeline", "run", *words, "--bounded", *WINDOWS]) == 0
    judge.assert_same(prefix, archive, tmp_path)


@pytest.mark.soak
@pytest.mark.flink
def test_the_metrics_job_tells_the_backtests_points(
    flink: Flink, kafka: Kafka, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is tried on an archive in one process would not be what the cluster's job makes of the same spans."""
    from tests.stack.cluster import VENV, spanlite

    prefix = emitted(kafka, archive, "job")
    words = ["--bootstrap", kafka.bootstrap, "--prefix", prefix, "--bounded", "--job", "metrics", "--runner", "flink"]
    words += ["--flink-python", str(VENV / "bin/python"), "--flink-conf", str(flink.folder / "conf")]
    spanlite("pipeline", "run", *words, *WINDOWS)
    Judge(kafka, capsys).assert_same(prefix, archive, tmp_path)
