"""The HTML of a page that needs nothing but itself: one style sheet, tables, pictures as data."""

import base64
from html import escape
from pathlib import Path

from carom.evaluation.tables import Table

_TYPES = {".png": "image/png", ".gif": "image/gif"}

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --page: #ffffff; --soft: #5b5b5b; --rule: #d5d5d5;
  --band: #f4f5f7; --link: #00568a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --page: #16181c; --soft: #a9adb5; --rule: #3a3e46; --band: #1f2228;
    --link: #7cc4f5; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem;
  color: var(--ink); background: var(--page);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; }
p, li { max-width: 46rem; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; list-style: none; max-width: none; }
code, pre { font: .9em ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
pre { padding: .75rem 1rem; overflow-x: auto; background: var(--band); border-radius: .4rem; }
.scroll { overflow-x: auto; margin: 1rem 0 1.5rem; }
.scroll:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; color: var(--soft); }
caption span { display: block; max-width: min(46rem, 90vw); }
th, td { padding: .3rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
thead th { vertical-align: bottom; border-bottom: 2px solid var(--soft); }
tbody th { font-weight: 600; min-width: 8.5rem; }
tbody tr:nth-child(even) { background: var(--band); }
.n { text-align: right; }
td.n { white-space: nowrap; }
figure { margin: 1rem 0 1.5rem; }
figure .scroll { margin: 0; border-radius: .4rem; }
figure img { display: block; width: 100%; min-width: 44rem; height: auto; background: #ffffff; }
figure.moving img { max-width: 50rem; min-width: 30rem; }
figcaption { color: var(--soft); font-size: .875rem; margin-top: .4rem; max-width: 46rem; }
summary { cursor: pointer; color: var(--link); }
footer { margin-top: 3rem; color: var(--soft); font-size: .875rem; }
@media (min-width: 40rem) { body { padding: 2.5rem 2rem 5rem; } }
"""


def page(title: str, body: str, *, style: str = "", policy: str | None = None) -> str:
    """A whole document.

    Arguments:
        title: what the browser calls it.
        body: its content.
        style: a style sheet that adds to the common one.
        policy: what the browser may load, where that is to be enforced.
    """
    meta = "" if policy is None else f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'{meta}<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Without an icon of its own, a browser would ask the server for one.
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def table_html(table: Table) -> str:
    """A table with its caption; it scrolls sideways where the screen is narrow."""
    classes = [' class="n"' if numeric else "" for numeric in table.numeric]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(table.header, classes, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + f'<th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row[1:], classes[1:], strict=True))
        + "</tr>"
        for row in table.rows
    )
    # Reachable by keyboard, as everything that scrolls must be.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.caption)}">\n<table>\n'
        f"<caption><span>{escape(table.caption)}</span></caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
    )


def figure_html(path: Path, *, alternative: str, caption: str, kind: str = "still") -> str:
    """A picture, stored inside the page, with a text that stands for it.

    On a narrow screen it scrolls sideways rather than shrink its labels below reading.
    """
    label = alternative.partition(":")[0]
    content = base64.b64encode(path.read_bytes()).decode()
    source = f"data:{_TYPES[path.suffix]};base64,{content}"
    return (
        f'<figure class="{kind}">\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
        f'<img src="{source}" alt="{escape(alternative)}"></div>\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )
