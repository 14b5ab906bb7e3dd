"""Velocity Verlet with impacts at their instants inside the step."""
