"""The table of torch's operations: what each does to paths, and the names of its arguments.

Each operation has one plain name: ``torch.relu``, ``Tensor.relu_``, ``F.relu``, ``nn.ReLU`` and ``aten::relu`` are all
"relu". Nothing outside this package names an operation of torch in order to understand a user's model.
"""

import ast
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


class Kind(Enum):
    """What an operation does to the signals that pass it."""

    WEIGHT = "weight layer"
    GATE = "gate"
    SELECTION = "selection"  # each output is one of several inputs: max-pooling
    REARRANGEMENT = "rearrangement"  # each output is one input or zero, the same for all examples
    SPATIAL = "linear in space"  # the same linear map of positions in every channel
    SUM = "sum"
    CONCATENATION = "concatenation"
    SCALE = "constant scale"  # linear in each operand; a product of two signals is an obstacle
    NORMALISATION = "normalisation"  # a scale and a shift of each channel, in evaluation mode
    DROPOUT = "dropout"  # nothing, in evaluation mode
    PASSING = "passes"  # copies and conversions
    LINEAR = "linear"  # affine in all its tensors together, without a rule for paths
    PRODUCT = "product"  # linear in each of its tensors: matmul, einsum
    HEAD = "head"  # allowed after the last weight layer
    START = "constant start"  # values start at ones
    OBSTACLE = "obstacle"


# Kinds that are affine in all signals together; those that are affine in each signal alone.
AFFINE = frozenset(
    {
        *(Kind.REARRANGEMENT, Kind.SPATIAL, Kind.SUM, Kind.CONCATENATION),
        *(Kind.NORMALISATION, Kind.DROPOUT, Kind.PASSING, Kind.LINEAR),
    }
)
MULTILINEAR = frozenset({Kind.WEIGHT, Kind.SCALE, Kind.PRODUCT})

_CONVOLUTION = "(input weight bias=None stride=1 padding=0 dilation=1 groups=1 padding_mode='zeros')"
_TRANSPOSED = _CONVOLUTION.replace("dilation=1 groups=1", "output_padding=0 groups=1 dilation=1").replace(
    ")", " output_size=None)"
)
_WINDOWS = "(input kernel_size stride=None padding=0 dilation=1 ceil_mode=False return_indices=False)"
_AVERAGE = "(input kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True divisor_override=None)"

# Each row: names of operations, then their arguments in brackets, with defaults.
_TABLE = {
    Kind.WEIGHT: f"""
        linear (input weight bias=None)
        conv1d conv2d conv3d {_CONVOLUTION}
        conv_transpose1d conv_transpose2d conv_transpose3d {_TRANSPOSED}
        """,
    Kind.GATE: """
        relu (input inplace=False)
        leaky_relu (input negative_slope=0.01 inplace=False)
        prelu (input weight)
        relu6 (input inplace=False)
        hardtanh (input min_val=-1.0 max_val=1.0 inplace=False)
        clamp clip (input min=None max=None)
        clamp_min (input min)
        threshold (input threshold value inplace=False)
        silu hardswish mish selu (input inplace=False)
        gelu (input approximate='none')
        elu celu (input alpha=1.0 inplace=False)
        softplus (input beta=1 threshold=20)
        gated (value q gate)
        """,
    Kind.SELECTION: f"""
        max_pool1d max_pool2d max_pool3d {_WINDOWS}
        max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices {_WINDOWS}
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d (input output_size return_indices=False)
        adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
            (input output_size return_indices=False)
        gated_max_pool (value q pool)
        """,
    Kind.REARRANGEMENT: """
        flatten (input start_dim=0 end_dim=-1)
        pad (input pad mode='constant' value=None)
        view reshape unflatten ravel squeeze unsqueeze permute transpose swapaxes swapdims movedim moveaxis
        getitem narrow select split split_with_sizes tensor_split chunk unbind index_select flip roll rot90
        expand expand_as repeat repeat_interleave tile pixel_shuffle pixel_unshuffle channel_shuffle unfold
        """,
    Kind.SPATIAL: f"""
        avg_pool1d avg_pool2d avg_pool3d {_AVERAGE}
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d (input output_size)
        mean sum (input dim=None keepdim=False dtype=None)
        interpolate upsample
        """,
    Kind.SUM: "add radd iadd sub isub subtract (input other alpha=1) rsub (other input alpha=1)",
    Kind.CONCATENATION: "cat concat concatenate stack (tensors dim=0)",
    Kind.SCALE: """
        mul rmul imul multiply div truediv itruediv divide true_divide (input other rounding_mode=None)
        neg negative (input)
        """,
    Kind.NORMALISATION: """
        batch_norm (input running_mean running_var weight=None bias=None training=False momentum=0.1 eps=1e-05)
        """,
    Kind.DROPOUT: """
        dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout
            (input p=0.5 training=True inplace=False)
        """,
    Kind.PASSING: "identity contiguous clone detach to type_as positive float double half bfloat16 alias requires_grad",
    Kind.LINEAR: """
        cumsum diff hstack vstack dstack column_stack row_stack block_diag view_as reshape_as t T mT H mH adjoint
        broadcast_to broadcast_tensors hsplit vsplit dsplit fold im2col col2im constant_pad_nd fliplr flipud
        diagonal diag diag_embed tril triu gather take take_along_dim masked_fill masked_select masked_scatter where
        scatter scatter_add index_add index_copy index_put index_fill data real cpu cuda
        atleast_1d atleast_2d atleast_3d overlaid
        """,
    Kind.PRODUCT: """
        matmul rmatmul mm bmm mv dot vdot inner outer ger kron tensordot einsum bilinear addmm addmv addbmm baddbmm
        addcmul convolution
        """,
    Kind.HEAD: "softmax log_softmax sigmoid",
    Kind.START: "ones_like",
    Kind.OBSTACLE: "glu (input dim=-1) hardsigmoid tanh (input)",
}

# These squeeze a signal between bounds, so it is the gate in a product with another signal.
SQUASHING = frozenset("sigmoid softmax hardsigmoid tanh relu6 hardtanh clamp clip".split())
SHAPED_LIKE = frozenset("expand_as view_as reshape_as type_as".split())  # take shape or dtype from another signal
PRODUCTS = frozenset("mul rmul imul multiply".split())
QUOTIENTS = frozenset("div truediv itruediv divide true_divide".split())
DIFFERENCES = frozenset("sub isub subtract rsub".split())
TRANSPOSED = frozenset(f"conv_transpose{axes}d" for axes in (1, 2, 3))
CONVOLUTIONS = frozenset(f"conv{axes}d" for axes in (1, 2, 3)) | TRANSPOSED
# These pass a value of the data to Python, where it may decide what runs next.
READS = frozenset("bool item int float index tolist numpy array equal allclose is_nonzero".split())
# These create a tensor with the shape of the argument, but not its values.
SHAPE_ONLY = frozenset("zeros_like ones_like empty_like full_like new_zeros new_ones new_empty new_full".split())
SIZES = frozenset("size shape dim ndim numel ndimension dtype device".split())

_MODULES: Mapping[str, str] = {
    **{name: name.lower() for name in ("Linear", "Conv1d", "Conv2d", "Conv3d", "ReLU", "ReLU6", "Hardtanh", "PReLU")},
    **{f"ConvTranspose{axes}d": f"conv_transpose{axes}d" for axes in (1, 2, 3)},
    **{f"MaxPool{axes}d": f"max_pool{axes}d" for axes in (1, 2, 3)},
    **{f"AdaptiveMaxPool{axes}d": f"adaptive_max_pool{axes}d" for axes in (1, 2, 3)},
    **{f"AvgPool{axes}d": f"avg_pool{axes}d" for axes in (1, 2, 3)},
    **{f"AdaptiveAvgPool{axes}d": f"adaptive_avg_pool{axes}d" for axes in (1, 2, 3)},
    **{f"{mode}Pad{axes}d": "pad" for mode in ("Zero", "Constant", "Reflection") for axes in (1, 2, 3)},
    **{f"{mode}Pad{axes}d": "pad" for mode in ("Replication", "Circular") for axes in (1, 2, 3)},
    **{name: name.lower() for name in ("Threshold", "Flatten", "Unflatten", "Identity", "Softmax", "Sigmoid")},
    **dict.fromkeys(("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"), "interpolate"),
    **{name: name.lower() for name in ("SiLU", "GELU", "Hardswish", "Hardsigmoid", "Mish", "ELU", "SELU", "CELU")},
    **{name: name.lower() for name in ("Softplus", "Tanh", "GLU")},
    "LeakyReLU": "leaky_relu",
    "LogSoftmax": "log_softmax",
    "PixelShuffle": "pixel_shuffle",
    "PixelUnshuffle": "pixel_unshuffle",
    "ChannelShuffle": "channel_shuffle",
}


@dataclass(frozen=True)
class Operation:
    """A row of the table: a kind of operation, and its arguments in order with their defaults."""

    kind: Kind
    arguments: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


def _parsed(table: Mapping[Kind, str]) -> dict[str, Operation]:
    """Parse the rows: names of operations, then their arguments in brackets."""
    found: dict[str, Operation] = {}
    waiting: list[str] = []
    for kind, text in table.items():
        for row in text.replace("(", "|(").replace(")", ")|").split("|"):
            words = row.split()
            if row.startswith("("):
                given = [argument.partition("=") for argument in row.strip("()").split()]
                defaults = {name: ast.literal_eval(value) for name, equals, value in given if equals}
                for name in waiting:
                    found[name] = Operation(kind, tuple(name for name, _, _ in given), defaults)
                waiting = []
            else:
                waiting = words
                found |= {name: Operation(kind) for name in words}
    return found


OPERATIONS: Mapping[str, Operation] = _parsed(_TABLE)
# Functions that take the arguments of their operation in another order.
_OTHER_ORDER: Mapping[Any, tuple[str, ...]] = {
    torch.batch_norm: tuple("input weight bias running_mean running_var training momentum eps cudnn_enabled".split())
}
_UNKNOWN = Operation(Kind.OBSTACLE)


@lru_cache(maxsize=1024)
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


def module_operation(module: nn.Module) -> str:
    """Return the plain name of the operation of one of torch's modules; its class if the table does not have it."""
    return _class_operation(type(module))


@lru_cache(maxsize=1024)
def _class_operation(kind: type[nn.Module]) -> str:
    if issubclass(kind, _BatchNorm):
        return "batch_norm"
    if issubclass(kind, _DropoutNd):
        return "dropout"
    name = kind.__name__
    return _MODULES.get(name, name) if kind.__module__.startswith("torch.nn") else name


def argument_names(function: Any, name: str) -> tuple[str, ...]:
    """Return the names of a function's arguments in order; ``name`` is the name of its operation."""
    return _OTHER_ORDER.get(function, operation(name).arguments) if callable(function) else operation(name).arguments


def operation(name: str) -> Operation:
    """Return the row of an operation; one that is not in the table is an obstacle."""
    return OPERATIONS.get(name, _UNKNOWN)


def tensors_in(*values: Any) -> Iterator[Tensor]:
    """Yield every tensor inside nested arguments or results."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list | deque):
            yield from tensors_in(*value)
        elif isinstance(value, dict):
            yield from tensors_in(*value.values())
