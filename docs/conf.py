"""How Sphinx builds these pages: `make docs`."""

from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

from carom import __version__

project, author, release = "Carom", "the Carom developers", __version__
copyright = author
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Carom {release}"
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_custom_sections = [("Arguments", "params_style")]
default_role = "code"  # what single backticks mean in docstrings

sphinx_gallery_conf = {
    "examples_dirs": [str(Path(__file__).parents[1] / "examples")],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "abort_on_example_error": True,
}


def setup(app):
    """What Sphinx does not do by itself."""

    def escape_bars(app, what, name, obj, options, lines):  # absolute values, not substitutions
        lines[:] = [line if ">>>" in line else line.replace("|", "\\|") for line in lines]

    def skip_bare_fields(app, what, name, obj, skip, options):
        return skip or str(getattr(obj, "__doc__", "")).startswith("Alias for field number")

    app.connect("autodoc-process-docstring", escape_bars, priority=900)
    app.connect("autodoc-skip-member", skip_bare_fields)
    # MathML, which browsers draw without a script from elsewhere.
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))


def _inline(writer, node):
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(writer, node):
    writer.body.append(f"<div>{tex2mathml(node.astext(), as_block=True)}</div>")
    raise nodes.SkipNode
