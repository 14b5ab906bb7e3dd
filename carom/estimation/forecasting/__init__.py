"""Last states of recorded motions, and motions from them."""
