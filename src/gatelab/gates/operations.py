"""What gatelab knows about torch operations: which are linear in the data, and which read it.

Each operation has one plain name: ``torch.relu``, ``Tensor.relu_``, ``F.relu`` and ``aten::relu`` are all "relu".
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

# Affine in all tensor arguments jointly. Masks and indices among the arguments are safe: a mask that depends on the
# data comes from an operation outside this table (a comparison, an argmax), which is already noted as an obstacle.
LINEAR = frozenset(
    """
    add radd iadd sub rsub isub subtract neg negative positive sum mean cumsum diff
    cat concat concatenate stack hstack vstack dstack column_stack row_stack block_diag
    view view_as reshape reshape_as flatten unflatten ravel squeeze unsqueeze permute transpose swapaxes swapdims
    movedim moveaxis t T mT H mH adjoint expand expand_as broadcast_to broadcast_tensors repeat repeat_interleave
    tile narrow select split split_with_sizes tensor_split chunk unbind hsplit vsplit dsplit iter
    unfold fold im2col col2im pad constant_pad_nd flip fliplr flipud roll rot90 diagonal diag diag_embed tril triu
    getitem setitem index_select gather take take_along_dim masked_fill masked_select masked_scatter where scatter
    scatter_add index_add index_copy index_put index_fill fill zero copy
    clone contiguous detach alias data real to type_as float double half bfloat16 cpu cuda requires_grad
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    interpolate upsample pixel_shuffle pixel_unshuffle channel_shuffle atleast_1d atleast_2d atleast_3d
    """.split()
)

# Affine in each argument alone: linear as long as at most one argument depends on the data.
BILINEAR = frozenset(
    """
    mul rmul imul multiply div truediv itruediv divide true_divide matmul rmatmul mm bmm mv dot vdot inner outer ger
    kron tensordot einsum linear bilinear addmm addmv addbmm baddbmm addcmul
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution
    """.split()
)
QUOTIENTS = frozenset("div truediv itruediv divide true_divide".split())
# Of these, the ones that keep every unit apart; the others sum over units, as a weight layer does.
ELEMENTWISE = QUOTIENTS | frozenset("mul rmul imul multiply addcmul".split())

# Linear in evaluation mode only.
NORMALISING = frozenset({"batch_norm"})
DROPPING = frozenset(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout".split()
)

# Pass a value of the data to Python, where it may decide what runs next.
READS = frozenset("bool item int float index tolist numpy array equal allclose is_nonzero".split())

# Create a tensor with the shape of the argument, but not its values.
SHAPE_ONLY = frozenset("zeros_like ones_like empty_like full_like new_zeros new_ones new_empty new_full".split())


def operation_name(function: Callable[..., Any]) -> str:
    """Return the plain name of a torch function.

    Example:
        >>> import torch
        >>> import torch.nn.functional as F
        >>> [operation_name(f) for f in (torch.relu, Tensor.relu_, F.relu, Tensor.__add__, Tensor.T.__get__)]
        ['relu', 'relu', 'relu', 'add', 'T']
    """
    name = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__"):  # attribute access, e.g. x.T
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    return name.split(".")[0].strip("_")


def tensors_in(*values: Any) -> Iterator[Tensor]:
    """Yield every tensor inside nested arguments or results."""
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def is_linear_in_data(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], data: list[Tensor]) -> bool:
    """Whether an operation in evaluation mode is affine in ``data``, its arguments that depend on the input."""
    if name in QUOTIENTS:
        return len(data) == 1 and next(tensors_in(args, kwargs)) is data[0]
    if name in BILINEAR or name in NORMALISING:
        return len(data) == 1
    return name in LINEAR or name in DROPPING


def is_training(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a batch-norm or dropout call mixes examples or draws random numbers."""
    if name in DROPPING and kwargs.get("p", args[1] if len(args) > 1 else None) == 0:
        return False
    if "training" in kwargs:
        return bool(kwargs["training"])
    position = 5 if name in NORMALISING else 2
    if len(args) > position:
        return bool(args[position])
    return name in DROPPING  # F.dropout trains by default, F.batch_norm does not
