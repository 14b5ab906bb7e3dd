"""What figures share: one style, trajectories, scenes of bodies and walls, and animations."""
