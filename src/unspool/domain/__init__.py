"""Domain of unspool: plain frozen values, built with the standard library only."""
