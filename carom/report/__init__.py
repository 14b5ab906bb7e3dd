"""The page of one fit: recording, parameters, diagnostics, forecast and an animated scene in one file."""

from carom.report.fit_page import write_report
