"""Hits out: plan, retrieve, fuse, rank, hydrate to a budget. Everything but the engine is pure."""
