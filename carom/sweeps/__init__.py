"""Many fits of recordings: a grid or a study, one by one or on a cluster."""
