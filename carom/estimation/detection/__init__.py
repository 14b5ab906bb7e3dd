"""Impacts found in recordings, and the scene that they imply."""
