"""The node side: CUPTI bytes to span batches."""
