"""Recordings as laboratories make them, with the truth beside, and scores of what is learned from them."""
