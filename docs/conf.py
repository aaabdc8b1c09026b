"""The documentation's settings; ``make docs`` builds it into docs/_build/html."""

import sys
from pathlib import Path

import gatelab

sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(Path(__file__).parents[1])]

project = "gatelab"
author = "The gatelab authors"
release = version = gatelab.__version__
extensions = [
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "generated_pages",
]
html_math_renderer = "mathml"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_ext"]
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
# An axis in a jaxtyping annotation looks like a name to refer to.
suppress_warnings = ["config.cache", "ref.python"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "pydata_sphinx_theme"
html_title = f"gatelab {version}"
html_static_path = ["_static"]
html_css_files = ["gatelab.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "show_nav_level": 1,
    "navigation_depth": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 9,
}
copyright = "The gatelab authors, MIT licence"  # noqa: A001  Sphinx calls it so
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
