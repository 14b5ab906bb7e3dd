"""The page of one fit: recording, parameters, diagnostics, forecast and an animated scene in one file."""

from carom.report.fit_page import write_report
from carom.report.page import Section, figure_html, list_html, render_page, table_html

__all__ = ["Section", "figure_html", "list_html", "render_page", "table_html", "write_report"]
