"""Checksums that files carry inside themselves: one mechanism for JSON files, lines of JSON and safetensors.

Each of these formats has room for one more text, ``"checksum": "sha256:0123456789abcdef"``. The digits are the start of
the SHA-256 of the whole content, with zeros in place of the digits. A file and its checksum therefore appear on the
disk in one step, and no second file can be lost or stale.
"""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

KEY = "checksum"
_PREFIX, _DIGITS = "sha256:", 16
BLANK = _PREFIX + _DIGITS * "0"
_SEAL = re.compile(rb'"checksum": ?"sha256:([0-9a-f]{16})"')
# If content without a readable checksum contains one of these, the checksum itself is damaged.
_TRACES = (b'"checksum"', _PREFIX.encode())


class Condition(StrEnum):
    """What a checksum says about a file, or about a part of it."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    UNSEALED = "written without checksums"  # by version 0.1


@dataclass(frozen=True)
class Part:
    """A part of a directory, its condition, and what is wrong with it.

    Attributes:
        group: what the part belongs to, such as "cells/first".
        name: its own name within the group.
        condition: whether it is whole.
        fault: what is wrong, as a predicate; empty unless it is damaged.
    """

    group: str
    name: str
    condition: Condition
    fault: str = ""


def sealed(content: bytes | memoryview, bound_to: str = "") -> tuple[memoryview, bytes, memoryview]:
    """Replace :data:`BLANK` in the content by its checksum; return three parts, to be written one after the other.

    ``bound_to`` enters the checksum, so content that was moved to another place counts as damaged there.

    Example:
        >>> b"".join(sealed(b'{"checksum": "sha256:0000000000000000", "value": 1}'))
        b'{"checksum": "sha256:99edab450d9a9235", "value": 1}'
    """
    match = _SEAL.search(content)
    assert match is not None, "content has no place for its checksum"
    start, end = match.span(1)
    view = memoryview(content)
    return view[:start], _digits(view, start, end, bound_to), view[end:]


def condition(content: bytes | memoryview, bound_to: str = "") -> Condition:
    """Compare content with the checksum inside it.

    Example:
        >>> condition(b'{"value": 1}').value
        'written without checksums'
    """
    match = _SEAL.search(content)
    if match is None:
        traces = bytes(content)
        return Condition.DAMAGED if any(trace in traces for trace in _TRACES) else Condition.UNSEALED
    digits = _digits(memoryview(content), *match.span(1), bound_to)
    return Condition.WHOLE if digits == match[1] else Condition.DAMAGED


def _digits(content: memoryview, start: int, end: int, bound_to: str) -> bytes:
    sha = hashlib.sha256(bound_to.encode())
    for part in (content[:start], b"0" * _DIGITS, content[end:]):
        sha.update(part)
    return sha.hexdigest()[:_DIGITS].encode()
