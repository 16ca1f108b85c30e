"""Search by word: how text becomes terms, and the index of those terms."""
