"""The value tangent kernel of small networks (npk, Definition 3.2)."""

from jaxtyping import Float
from torch import Tensor, nn

from gatelab.paths.features import path_gradients


def value_tangent_kernel(
    model: nn.Module, x: Float[Tensor, "n ..."] | None = None, *, limit: int = 4096
) -> Float[Tensor, "paths paths"]:
    r"""Compute the inner products of the gradients of path values.

    .. math:: \mathcal V(p, p') = \langle \varphi_p, \varphi_{p'} \rangle

    It depends only on the weights, so there is no argument ``gates``. The tangent kernel is
    :math:`K = \Phi^\top \mathcal V\, \Phi` (npk, Prop. 3.1) if gates are bits; if they are soft, this is K^V, the
    values' part. For several outputs 𝒱 is the sum over outputs, and K the trace kernel.

    Args:
        model: a small network. Unless it is fully connected, each row is a bundle of
            :class:`gatelab.paths.PathBundles`, with gradients of dense and convolutional layers only.
        x: examples, as in :func:`gatelab.neural_path_values`; their values do not matter.
        limit: the largest number of paths to enumerate.

    Returns:
        𝒱, with paths in the order of :func:`gatelab.neural_path_values`.

    Raises:
        TooManyPathsError: more than ``limit`` paths.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
        >>> _ = nn.init.constant_(net[0].weight, 2), nn.init.constant_(net[2].weight, 3)
        >>> value_tangent_kernel(net).tolist()  # one path with the value 2 · 3, whose gradient is (3, 2)
        [[13.0]]
    """
    gradients = path_gradients(model, x, limit=limit).flatten(1)
    return gradients @ gradients.T
