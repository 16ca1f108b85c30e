"""Detection and masking of secrets in text."""
