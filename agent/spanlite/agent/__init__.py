"""The node side: CUPTI bytes to span batches. And `attach`, with which a program has itself traced."""

from spanlite.agent.attach import attach

__all__ = ["attach"]
