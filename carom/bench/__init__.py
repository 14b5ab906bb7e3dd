"""Speed: the same work for every model and both recipes, each case in a process of its own."""
