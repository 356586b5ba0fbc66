"""Kafka behind the ports: `KafkaProducer`, `KafkaConsumer`, and the `KafkaSettings` that both take."""

from spanlite.transport.kafka_consumer import KafkaConsumer
from spanlite.transport.kafka_producer import KafkaProducer
from spanlite.transport.kafka_settings import KafkaSettings

__all__ = ["KafkaConsumer", "KafkaProducer", "KafkaSettings"]
