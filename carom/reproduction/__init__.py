"""The published experiments: configurations, runs, tables and figures."""
