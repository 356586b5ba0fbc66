"""What the jobs partition by, as text: Flink takes no byte array for a key."""

from __future__ import annotations

from collections.abc import Sequence

from spanlite.pipeline.routing import producer_of


def key_of_message(message: bytes) -> str:
    """Producer of a message, 32 hex digits."""
    return producer_of(bytes(message)).hex()


def gpu_of_piece(piece: Sequence[str]) -> str:
    """UUID of the GPU that a piece is of."""
    return piece[0]
