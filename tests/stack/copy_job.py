"""A Flink job for test_flink.py: each value of one topic becomes key and value in another."""

from __future__ import annotations

import sys

from pyflink.common import Row, Types, WatermarkStrategy
from pyflink.common.serialization import ByteArraySchema
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from pyflink.datastream.functions import MapFunction, RuntimeContext
from pyflink.table import DataTypes, Schema, StreamTableEnvironment


class Copy(MapFunction):  # type: ignore[misc]  # PyFlink is not in the venv of the type checker
    """VALUE becomes (VALUE, module:VALUE): the module shows that spanlite is there where the job runs."""

    def open(self, _: RuntimeContext) -> None:
        import spanlite.pipeline

        self._module = spanlite.pipeline.__name__.encode()

    def map(self, value: bytes) -> Row:
        return Row(value, self._module + b":" + value)


def main(bootstrap: str, source_topic: str, target_topic: str) -> None:
    """Describes the job and hands it to the cluster."""
    env = StreamExecutionEnvironment.get_execution_environment()
    tables = StreamTableEnvironment.create(env)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics(source_topic)
        .set_group_id("copy")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(ByteArraySchema())
        .build()
    )
    rows = (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "source")
        .uid("source")
        .map(Copy(), Types.ROW_NAMED(["k", "v"], [Types.PRIMITIVE_ARRAY(Types.BYTE())] * 2))
        .uid("copy")
    )
    schema = Schema.new_builder().column("k", DataTypes.BYTES()).column("v", DataTypes.BYTES()).build()
    tables.execute_sql(
        f"""CREATE TABLE target (k BYTES, v BYTES) WITH (
            'connector' = 'kafka', 'properties.bootstrap.servers' = '{bootstrap}', 'topic' = '{target_topic}',
            'key.format' = 'raw', 'key.fields' = 'k', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY',
            'sink.delivery-guarantee' = 'at-least-once')"""
    )
    statements = tables.create_statement_set()
    statements.add_insert("target", tables.from_data_stream(rows, schema))
    statements.attach_as_datastream()
    env.execute("copy")


if __name__ == "__main__":
    main(*sys.argv[1:])
