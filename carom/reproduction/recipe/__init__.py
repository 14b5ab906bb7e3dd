"""Our recipe on the same systems."""
