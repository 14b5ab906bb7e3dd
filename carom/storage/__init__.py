"""Files: atomic writes, locks, tensors, checkpoints, the cache of compiled programs."""
