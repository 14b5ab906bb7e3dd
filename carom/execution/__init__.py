"""Independent tasks on local processes or a dask cluster, with their results stored on disk."""
