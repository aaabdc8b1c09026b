"""How objects show themselves: one line at a prompt, a small table in a notebook, with all text escaped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any

_MOST_ROWS = 30
_MOST_LETTERS, _MOST_NUMBERS = 60, 4


class Brief:
    """A dataclass (``repr=False``) that prints in one line, whatever it holds, and as a table in a notebook."""

    def facts(self) -> dict[str, str]:
        """Return the facts to show: by default the fields; a class may override this."""
        owned: Any = self
        return {field.name: in_brief(getattr(self, field.name)) for field in fields(owned) if field.repr}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.facts().items())})"

    def _repr_html_(self) -> str:
        return html_facts(type(self).__name__, self.facts())


def counted(number: int, thing: str) -> str:
    """Return a number with what it counts.

    Example:
        >>> counted(1, "epoch"), counted(1200, "epoch")
        ('1 epoch', '1,200 epochs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def in_brief(value: object) -> str:
    """Describe a value briefly: a tensor by its shape, a network by its class, a long text by its beginning.

    Example:
        >>> in_brief("x" * 100), in_brief(list(range(50)))
        ("'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'", 'list of 50')
    """
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        held: Any = value
        kind = str(held.dtype).removeprefix("torch.")
        return f"{kind} {'×'.join(map(str, held.shape)) or 'number'}"
    if hasattr(value, "state_dict"):  # a network; torch need not be imported to know
        return type(value).__name__
    if isinstance(value, list | tuple | dict | set | frozenset) and len(value) > _MOST_NUMBERS:
        return f"{type(value).__name__} of {len(value)}"
    text = " ".join(repr(value).split())
    if len(text) <= _MOST_LETTERS:
        return text
    return f"{text[: _MOST_LETTERS - 1]}…{text[-1] if isinstance(value, str) else ''}"


def html_facts(title: str, facts: Mapping[str, object]) -> str:
    """Return a title and a table of names and values.

    Example:
        >>> html_facts("a < b", {"n": 3})
        '<div><b>a &lt; b</b><table><tbody><tr><th>n</th><td>3</td></tr></tbody></table></div>'
    """
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts.items())
    return f"<div><b>{_text(title)}</b><table><tbody>{rows}</tbody></table></div>"


def html_table(title: str, columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a title and a table; of many rows only the first and the last appear.

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
