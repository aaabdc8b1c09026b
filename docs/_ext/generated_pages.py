"""Pages that are made from the code at each build, into docs/generated: the API, the theorems, the errors."""

from pathlib import Path

import api_pages
import error_page
import repository_pages
import theorem_pages
from sphinx.application import Sphinx

GENERATED = Path(__file__).parents[1] / "generated"


def write_if_changed(path: Path, text: str) -> None:
    """Leave the file alone if it says this already, so that Sphinx does not read it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def generate(_app: Sphinx) -> None:
    """Write the pages; remove those of names that are gone."""
    pages = api_pages.pages() | error_page.pages() | repository_pages.pages() | theorem_pages.pages(GENERATED)
    for name, text in pages.items():
        write_if_changed(GENERATED / name, text)
    for path in GENERATED.rglob("*.*"):
        if path.suffix in {".md", ".rst"} and str(path.relative_to(GENERATED)) not in pages:
            path.unlink()


def link_to_generated(_app: Sphinx, page: str, source: list[str]) -> None:
    """Lead links to the changelog and the like, which work in the repository, to the pages of the site."""
    source[0] = repository_pages.rewrite(source[0], page.count("/"))


def skip_requests(_app: Sphinx, _what: str, name: str, _held: object, skip: bool, _options: object) -> bool:
    """Leave out the methods that scikit-learn adds for its routing of metadata; their texts refer to its own pages."""
    return skip or (name.startswith("set_") and name.endswith("_request"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Generate before Sphinx looks for pages."""
    app.connect("builder-inited", generate)
    app.connect("source-read", link_to_generated)
    app.connect("autodoc-skip-member", skip_requests)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
