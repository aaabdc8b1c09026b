"""Facts as JSON for a page: typed arrays in base64, and no "<" that could end the element which holds them."""

import base64
import json
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

import numpy as np

TYPES = {"uint8": "u1", "int8": "i1", "int32": "i4", "float32": "f4", "float64": "f8"}


def encoded(facts: Any) -> str:
    r"""Return facts as JSON that may stand inside an HTML element.

    Example:
        >>> encoded({"name": "</script>", "values": np.array([1, 2], np.uint8)})
        '{"name":"\\u003c/script>","values":{"type":"u1","shape":[2],"data":"AQI="}}'
    """
    text = json.dumps(_plain(facts), separators=(",", ":"), ensure_ascii=False)
    # U+2028 and U+2029 are line ends to older readers of JSON in scripts.
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def encoded_size(facts: Any) -> int:
    """Return the number of bytes that facts take on a page."""
    return len(encoded(facts).encode("utf-8", "surrogatepass"))


def array_size(count: int, octets: int) -> int:
    """Return the number of bytes that an array of so many numbers takes on a page, its frame included."""
    return 4 * -(-count * octets // 3) + 64


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
        data = base64.b64encode(little.tobytes()).decode()
        return {"type": TYPES[value.dtype.name], "shape": list(value.shape), "data": data}
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
