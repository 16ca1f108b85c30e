"""Documents in: what changed, read, cut, embedded, stored, absorbed."""
