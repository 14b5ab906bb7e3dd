"""The paper's experiments under both protocols."""
