"""Many fits: a grid or a study of options, on local processes or a cluster."""
