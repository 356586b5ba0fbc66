"""Hardware counters of whole GPUs, sampled by CUPTI, and which kernel ran meanwhile."""
