"""Many bodies in one to three dimensions."""
