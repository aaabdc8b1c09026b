"""Facts into the page that the wheel carries: one file, which asks for nothing else."""

from html import escape
from importlib.resources import files

from gatelab.errors import InputError
from gatelab.lab.explore.encoding import encoded
from gatelab.lab.explore.facts import ExplorerFacts

_FACTS = '<script type="application/json" id="facts">null</script>'
_TITLE = "<title>gatelab explorer</title>"


def template() -> str:
    """Return the page without facts."""
    return (files("gatelab") / "web" / "explorer.html").read_text(encoding="utf-8")


def explorer_page(facts: ExplorerFacts, most: int) -> bytes:
    """Return the page; all that a user wrote is escaped.

    Args:
        facts: what it shows.
        most: the most bytes that it may have.

    Raises:
        InputError: it does not fit.
    """
    page = template()
    assert page.count(_FACTS) == 1
    title = f"<title>{escape(facts.network)} on {escape(facts.data)} · gatelab explorer</title>"
    filled = page.replace(_TITLE, title, 1).replace(_FACTS, _FACTS.replace("null", encoded(facts)), 1)
    content = filled.encode("utf-8", "replace")
    if len(content) > most:
        raise InputError(
            f"the page would have {len(content) / 1e6:.3g} MB, and may have {most / 1e6:.3g} MB; raise --most-mb, or "
            "ask for fewer examples, paths or planes"
        )
    return content
