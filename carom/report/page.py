"""Pages that are one self-contained file: a base template with sections, tables and figures."""

import base64
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from carom.digits import number
from carom.evaluation.tables import Table

Blocks = Iterable[str | Markup]
"""Paragraphs of text, which are escaped, and HTML as `Markup`, which is not."""
_TYPES = {".png": "image/png", ".gif": "image/gif"}


class Section(NamedTuple):
    """A part of a page with a heading; `name` is the target of links to it."""

    name: str
    title: str
    blocks: Blocks


def render_page(
    title: str, sections: Iterable[Section], *, heading: str, introduction: Blocks = (), footer: Blocks = ()
) -> str:
    """A whole document, which browsers let load nothing from elsewhere.

    Arguments:
        title: the name of the page in the browser.
        sections: its parts, listed in the navigation.
        heading: its first line.
        introduction: what stands before the navigation.
        footer: what stands at the end, such as provenance.
    """
    return page_environment().get_template("page.html").render(
        title=title,
        sections=[(section.name, section.title, _html(section.blocks)) for section in sections],
        heading=heading,
        introduction=_html(introduction),
        footer=_html(footer),
    )  # fmt: skip


def table_html(table: Table) -> Markup:
    """A table with its caption; it scrolls sideways on a narrow screen."""
    return part_html("table", table)


def list_html(items: Blocks) -> Markup:
    """A bulleted list."""
    return part_html("bullets", items)


def figure_html(path: Path, *, alternative: str, caption: str, animated: bool = False) -> Markup:
    """An image file embedded in the page.

    Arguments:
        path: the PNG or GIF file.
        alternative: what the image shows, for readers who cannot see it; a short name comes before a colon.
        caption: the text below it.
        animated: whether it may be narrower than a figure of several panels.
    """
    # Embedded: the page must open offline and be sent as one file.
    content = base64.b64encode(path.read_bytes()).decode()
    source = f"data:{_TYPES[path.suffix]};base64,{content}"
    return part_html("figure", source, alternative, caption, "moving" if animated else "still")


def part_html(name: str, *values: Any) -> Markup:
    """One of the macros of `parts.html`, filled in."""
    return getattr(page_environment().get_template("parts.html").module, name)(*values)


@cache
def page_environment() -> Environment:
    """The templates of pages, in which everything from files is escaped."""
    loader = PackageLoader("carom.report")
    made = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["number"] = number
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


def _html(blocks: Blocks) -> Markup:
    paragraph = Markup("<p>{}</p>")
    return Markup("\n").join(
        block if isinstance(block, Markup) else paragraph.format(block) for block in blocks
    )
