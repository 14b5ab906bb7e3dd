"""Figures as SVG inside a page, in the page's own colours, so that they follow its dark mode."""

import io
import re
import warnings
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

WIDTH, HEIGHT = 4.2, 2.9
"""Inches of a figure: drawn at this size, its letters are legible on a phone."""

# What Matplotlib is told, and what the page makes of it.
INK, PAPER, RULE, POINTS = "#000000", "#ffffff", "#e6e6e6", "#b0b0b0"
MODEL, SECOND, IMPACT = "#0072b2", "#009e73", "#d55e00"
_VARIABLES = {
    INK: "--ink",
    PAPER: "--page",
    RULE: "--rule",
    POINTS: "--points",
    MODEL: "--model",
    SECOND: "--second",
    IMPACT: "--impact",
}
STYLE = """
:root { --points: #8c8c8c; --model: #0072b2; --second: #009e73; --impact: #c14f00; }
@media (prefers-color-scheme: dark) {
  :root { --points: #8d939d; --model: #6fc1f2; --second: #46cfa3; --impact: #ff9b57; }
}
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1rem; }
.charts figure { margin: 0; max-width: 30rem; }
.charts svg { display: block; width: 100%; height: auto; }
.charts svg text { fill: var(--ink); }
"""


def inline_svg(figure: Figure, *, name: str, description: str) -> str:
    """The figure as an element of a page, with a text that stands for it.

    Arguments:
        figure: drawn in the colours of this module.
        name: unlike that of any other figure of the page; parts refer to each other by it.
        description: what there is to see, for those who do not.
    """
    buffer = io.StringIO()
    settings: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none"}
    with mpl.rc_context(settings), warnings.catch_warnings():
        # The browser has letters that Matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda found: _in_page(found[0]), text)
    # Names of groups, such as axes_1, are those of every figure; only what is referred to is unlike.
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    body = text[text.index(">") + 1 :]
    return (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box[1]}" role="img" '
        f'aria-label="{escape(description)}" data-chart="{escape(name)}">{body}'
    )


def _in_page(color: str) -> str:
    return f"var({_VARIABLES[color]})" if color in _VARIABLES else color
