"""Kafka as source and sink of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyflink.common import WatermarkStrategy
from pyflink.common.serialization import ByteArraySchema
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.kafka import KafkaOffsetResetStrategy, KafkaOffsetsInitializer, KafkaSource
from pyflink.table import DataTypes, Schema, StreamTableEnvironment


class Output(NamedTuple):
    """A stream of (key, value) rows and the topic that it goes to."""

    stream: DataStream
    topic: str


def source(
    env: StreamExecutionEnvironment,
    bootstrap: str,
    topic: str,
    group: str,
    properties: Mapping[str, str],
    *,
    bounded: bool,
) -> DataStream:
    """Values of a topic from the group's offsets on, or from its beginning where there are none.

    Args:
        properties: of the Java client, such as security.protocol.
        bounded: end when all is read that is there now.
    """
    builder = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics(topic)
        .set_group_id(group)
        .set_starting_offsets(KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST))
        .set_value_only_deserializer(ByteArraySchema())
        .set_property("check.crcs", "true")
        .set_property("partition.discovery.interval.ms", "30000")
    )
    for name, value in properties.items():
        builder = builder.set_property(name, value)
    if bounded:
        builder = builder.set_bounded(KafkaOffsetsInitializer.latest())
    stream = env.from_source(builder.build(), WatermarkStrategy.no_watermarks(), topic)
    return stream.uid(f"source-{topic}").name(f"read {topic}")


def sinks(
    env: StreamExecutionEnvironment, outputs: Sequence[Output], bootstrap: str, properties: Mapping[str, str]
) -> None:
    """Writes streams to their topics, at least once: each row's first value is the key, its second the value.

    A table sink, since the DataStream sink would take one element for both.
    """
    tables = _tables(env)
    statements = tables.create_statement_set()
    schema = Schema.new_builder().column("f0", DataTypes.BYTES()).column("f1", DataTypes.BYTES()).build()
    for output in outputs:
        name = output.topic.replace(".", "_").replace("-", "_")
        tables.execute_sql(_table(name, output.topic, bootstrap, properties))
        statements.add_insert(name, tables.from_data_stream(output.stream, schema))
    statements.attach_as_datastream()


def discard(env: StreamExecutionEnvironment, stream: DataStream) -> None:
    """Ends a stream of rows of one text whose operators do all that is to be done."""
    tables = _tables(env)
    tables.execute_sql("CREATE TABLE nothing (f0 STRING) WITH ('connector' = 'blackhole')")
    statements = tables.create_statement_set()
    statements.add_insert("nothing", tables.from_data_stream(stream))
    statements.attach_as_datastream()


def _tables(env: StreamExecutionEnvironment) -> StreamTableEnvironment:
    """Tables whose operators have ids of their own, so that a later version of the job finds their state."""
    tables = StreamTableEnvironment.create(env)
    tables.get_config().set("table.exec.uid.generation", "ALWAYS")
    return tables


def _table(name: str, topic: str, bootstrap: str, properties: Mapping[str, str]) -> str:
    options = {
        "connector": "kafka",
        "topic": topic,
        "key.format": "raw",
        "key.fields": "k",
        "value.format": "raw",
        "value.fields-include": "EXCEPT_KEY",
        "sink.delivery-guarantee": "at-least-once",
        "properties.bootstrap.servers": bootstrap,
        "properties.compression.type": "zstd",
        "properties.linger.ms": "20",
        "properties.max.request.size": str(8 << 20),
        **{f"properties.{key}": value for key, value in properties.items()},
    }
    listed = ", ".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in options.items())
    return f"CREATE TABLE `{name}` (k BYTES, v BYTES) WITH ({listed})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
