"""Formulas as MathML, which browsers draw themselves: pages need no script and no network."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)


def as_mathml(formula: str, display: bool) -> str:
    """Translate a formula of TeX.

    Raises:
        MathError: docutils does not know a command of the formula.
    """
    without_sizes = re.sub(r"\\[bB]igg?[lr]?(?![a-zA-Z])", "", formula.strip())  # browsers choose the size of brackets
    return latex2mathml.tex2mathml(without_sizes, as_block=display)


def visit(translator: Any, node: nodes.Element, display: bool) -> None:
    """Write a formula; one that cannot be translated is a warning, and so an error of `make docs`."""
    formula = node.astext()
    try:
        text = as_mathml(formula, display)
    except MathError as error:
        log.warning("formula %r: %s", formula, error, location=node)
        text = f"<code>{translator.encode(formula)}</code>"
    translator.body.append(f'<div class="math">{text}</div>' if display else text)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer as "mathml"."""
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(lambda translator, node: visit(translator, node, False), None),
        block_renderers=(lambda translator, node: visit(translator, node, True), None),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
