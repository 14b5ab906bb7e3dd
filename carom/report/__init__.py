"""The page of one fit: what was recorded, what was found, and what comes next, in one file."""

from carom.report.document import write_run_report

__all__ = ["write_run_report"]
