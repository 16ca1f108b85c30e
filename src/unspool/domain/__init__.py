"""What unspool is about, in plain frozen values. Standard library only."""
