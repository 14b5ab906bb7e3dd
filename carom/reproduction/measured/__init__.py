"""Measured recordings."""
