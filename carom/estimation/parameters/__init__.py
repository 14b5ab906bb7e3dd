"""What is estimated: parameters, their sharing and their report."""
