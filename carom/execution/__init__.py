"""Independent tasks on several processes, with finished ones kept on disk."""
