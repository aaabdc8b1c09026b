"""torch.fx's tracer, taught about augmented assignment."""

import operator
from typing import Any

from torch.fx import Node, Proxy, Tracer

from gatelab.network.nodes import is_shape


class _Proxy(Proxy):
    """Notes ``h += y`` as the write that it is; torch.fx takes it for ``h = h + y``, which leaves other names of h."""

    def __iadd__(self, other: Any) -> Proxy:
        return self._write("add", other)

    def __isub__(self, other: Any) -> Proxy:
        return self._write("sub", other)

    def __imul__(self, other: Any) -> Proxy:
        return self._write("mul", other)

    def __itruediv__(self, other: Any) -> Proxy:
        return self._write("div", other)

    def _write(self, operation: str, other: Any) -> Proxy:
        if is_shape(self.node):  # a number: nothing is written
            return getattr(operator, {"div": "truediv"}.get(operation, operation))(self, other)
        return self.tracer.create_proxy("call_method", f"{operation}_", (self, other), {})


class WritingTracer(Tracer):
    """A tracer that sees augmented assignments."""

    def proxy(self, node: Node) -> Proxy:
        """A stand-in for the node's value."""
        return _Proxy(node, self)
