"""Write docs/mutations.md."""

from tests.papers.mutations import PAGE, page

PAGE.write_text(page(), encoding="utf-8")
