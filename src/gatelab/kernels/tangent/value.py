"""The value tangent kernel of small networks (npk, Definition 3.2)."""

from jaxtyping import Float
from torch import Tensor, nn

from gatelab.paths import path_gradients


def value_tangent_kernel(model: nn.Module, *, limit: int = 4096) -> Float[Tensor, "paths paths"]:
    r"""Inner products of the gradients of path values.

    .. math:: \mathcal V(p, p') = \langle \varphi_p, \varphi_{p'} \rangle

    It depends on the weights alone; the tangent kernel is :math:`K = \Phi^\top \mathcal V\, \Phi` (npk, Prop. 3.1). For
    several outputs it is the sum over outputs, and K the trace kernel.

    Raises:
        TooManyPathsError: more than ``limit`` paths.
    """
    gradients = path_gradients(model, limit=limit).flatten(1)
    return gradients @ gradients.T
