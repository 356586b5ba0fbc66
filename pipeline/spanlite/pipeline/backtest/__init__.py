"""What the pipeline makes of an archive, again or with other settings, and how two sets of points differ."""
