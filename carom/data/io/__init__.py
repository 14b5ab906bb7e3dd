"""Recordings and system files on disk: formats, checks, and a sentence for everything that can be wrong."""
