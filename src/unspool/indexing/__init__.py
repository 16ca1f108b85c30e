"""Indexing: compare, prepare, embed and store documents."""
