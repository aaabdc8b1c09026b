"""A torch.fx tracer that records augmented assignments as in-place writes."""

import operator
from typing import Any

from torch.fx import Node, Proxy, Tracer

from gatelab.network.nodes import is_shape


class _Proxy(Proxy):
    """Record ``h += y`` as a write; torch.fx would record ``h = h + y``, which misses other references to h."""

    def __iadd__(self, other: Any) -> Proxy:
        return self._write("add", other)

    def __isub__(self, other: Any) -> Proxy:
        return self._write("sub", other)

    def __imul__(self, other: Any) -> Proxy:
        return self._write("mul", other)

    def __itruediv__(self, other: Any) -> Proxy:
        return self._write("div", other)

    def _write(self, operation: str, other: Any) -> Proxy:
        if is_shape(self.node):  # Python numbers are immutable
            return getattr(operator, {"div": "truediv"}.get(operation, operation))(self, other)
        return self.tracer.create_proxy("call_method", f"{operation}_", (self, other), {})


class WritingTracer(Tracer):
    """A tracer that records augmented assignments as in-place writes."""

    def proxy(self, node: Node) -> Proxy:
        """Wrap a node."""
        return _Proxy(node, self)
