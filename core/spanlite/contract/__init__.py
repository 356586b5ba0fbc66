"""What every part of spanlite shares: the record, its columns, the errors, the metric catalogue."""
