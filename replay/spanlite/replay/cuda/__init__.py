"""Re-enacts archived kernels on a GPU: busy kernels of their names, shapes, durations, streams and gaps."""
