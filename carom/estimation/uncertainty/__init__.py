"""Posterior samples and diagnostics."""
