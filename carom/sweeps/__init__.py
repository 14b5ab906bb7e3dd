"""Many fits: a grid of options, on local processes or a cluster."""
