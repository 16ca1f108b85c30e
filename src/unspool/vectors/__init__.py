"""Search by meaning: the VectorIndex port and its adapters."""
