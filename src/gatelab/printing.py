"""How objects show themselves in a notebook: small tables, all text escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_MOST_ROWS = 30


def html_facts(title: str, facts: Mapping[str, object]) -> str:
    """Return a title and a table of names and values.

    Example:
        >>> html_facts("a < b", {"n": 3})
        '<div><b>a &lt; b</b><table><tbody><tr><th>n</th><td>3</td></tr></tbody></table></div>'
    """
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts.items())
    return f"<div><b>{_text(title)}</b><table><tbody>{rows}</tbody></table></div>"


def html_table(title: str, columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a title and a table; of many rows the first and the last are shown.

    Example:
        >>> "<td>1</td>" in html_table("", ("step",), [(1,)])
        True
    """
    rows = list(rows)
    if len(rows) > _MOST_ROWS:
        half = _MOST_ROWS // 2
        rows = [*rows[:half], ("…",) * len(columns), *rows[-half:]]
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div><b>{_text(title)}</b><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _text(value: object) -> str:
    return escape(f"{value:.4g}" if isinstance(value, float) else str(value))
