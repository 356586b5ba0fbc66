"""Pure folding and archiving of span batches, and the runners that drive them."""
