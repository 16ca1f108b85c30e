"""Word indexes."""
