"""Derived indexes: retrieval by vector and by word, rebuilt from the catalog at any time."""
