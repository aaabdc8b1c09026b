"""Pages that stand in the repository beside docs, with links that work in the site."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}


def pages() -> dict[str, str]:
    """Return the pages by their names below docs/generated."""
    return {ours: _linked((ROOT / theirs).read_text(encoding="utf-8")) for theirs, ours in PAGES.items()}


def _linked(text: str) -> str:
    """Let links lead to the pages of the site."""

    def lead(link: re.Match[str]) -> str:
        path = link[1].removeprefix("../")
        return f"](../{path.removeprefix('docs/')}" if path.startswith("docs/") else f"]({PAGES.get(path, link[1])}"

    return re.sub(r"\]\(([\w./-]+\.md)", lead, text)


def rewrite(text: str, depth: int) -> str:
    """Return a page of docs, ``depth`` folders down, with links to the repository's pages led to the site's."""
    for theirs, ours in PAGES.items():
        text = text.replace(f"]({'../' * (depth + 1)}{theirs}", f"]({'../' * depth}generated/{ours}")
    return text
