"""Segments, sensitivities and block Levenberg–Marquardt."""
