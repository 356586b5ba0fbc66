"""The Parquet archive: every span once, in whole files that any reader of Parquet understands."""
