"""Balls among planes in a uniform field, event by event."""
