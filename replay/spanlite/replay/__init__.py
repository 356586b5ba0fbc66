"""Re-emission of archived traces."""
