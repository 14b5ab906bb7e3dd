"""How objects are displayed in a notebook: as a small table."""

from collections.abc import Sequence
from html import escape


def table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A title and a row for every name and value, as HTML.

    Example:
        >>> table("Ball", [("mass", "1 kg")])[:40]
        '<b>Ball</b><table><tr><th style="text-al'
    """
    left = 'style="text-align:left"'
    body = (f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(value)}</td></tr>" for name, value in rows)
    return f"<b>{escape(title)}</b><table>{''.join(body)}</table>"
