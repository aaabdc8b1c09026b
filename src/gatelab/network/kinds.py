"""What an operation does to paths: one table for functions, methods and torch's own modules."""

from collections.abc import Mapping
from enum import Enum

from torch import nn
from torch.fx import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from gatelab.network.nodes import node_operation


class Kind(Enum):
    """What an operation does to the signals that pass it."""

    WEIGHT = "weight layer"
    GATE = "gate"
    SELECTION = "selection"  # each output is one of several inputs: max-pooling
    REARRANGEMENT = "rearrangement"  # each output is one input or zero, the same for all examples
    SPATIAL = "linear in space"  # the same linear map of positions in every channel
    SUM = "sum"
    CONCATENATION = "concatenation"
    SCALE = "constant scale"
    PASSING = "passes"  # normalisation and dropout in evaluation mode, copies
    HEAD = "head"  # may stand behind the last weight layer
    START = "constant start"  # values start at ones
    OBSTACLE = "obstacle"


_TABLE = {
    Kind.WEIGHT: "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
    Kind.GATE: "relu leaky_relu prelu relu6 hardtanh clamp clip clamp_min threshold gated",
    Kind.SELECTION: """
        max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d gated_max_pool
        """,
    Kind.REARRANGEMENT: """
        view reshape flatten unflatten ravel squeeze unsqueeze permute transpose swapaxes swapdims movedim moveaxis
        getitem narrow select split split_with_sizes tensor_split chunk unbind index_select flip roll rot90
        expand expand_as repeat repeat_interleave tile pixel_shuffle pixel_unshuffle channel_shuffle unfold pad
        """,
    Kind.SPATIAL: """
        avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
        interpolate upsample mean sum
        """,
    Kind.SUM: "add radd iadd sub rsub isub subtract",
    Kind.CONCATENATION: "cat concat concatenate stack",
    Kind.SCALE: "mul rmul imul multiply div truediv itruediv divide true_divide neg negative",
    Kind.PASSING: """
        batch_norm dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout identity
        contiguous clone detach to type_as positive float double half bfloat16 alias
        """,
    Kind.HEAD: "softmax log_softmax sigmoid",
    Kind.START: "ones_like",
}
KINDS: Mapping[str, Kind] = {name: kind for kind, names in _TABLE.items() for name in names.split()}

_MODULES: Mapping[type[nn.Module], str] = {
    nn.Linear: "linear",
    nn.Conv1d: "conv1d",
    nn.Conv2d: "conv2d",
    nn.Conv3d: "conv3d",
    nn.ConvTranspose1d: "conv_transpose1d",
    nn.ConvTranspose2d: "conv_transpose2d",
    nn.ConvTranspose3d: "conv_transpose3d",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Hardtanh: "hardtanh",
    nn.LeakyReLU: "leaky_relu",
    nn.PReLU: "prelu",
    nn.Threshold: "threshold",
    nn.MaxPool1d: "max_pool1d",
    nn.MaxPool2d: "max_pool2d",
    nn.MaxPool3d: "max_pool3d",
    nn.AdaptiveMaxPool1d: "adaptive_max_pool1d",
    nn.AdaptiveMaxPool2d: "adaptive_max_pool2d",
    nn.AdaptiveMaxPool3d: "adaptive_max_pool3d",
    nn.AvgPool1d: "avg_pool1d",
    nn.AvgPool2d: "avg_pool2d",
    nn.AvgPool3d: "avg_pool3d",
    nn.AdaptiveAvgPool1d: "adaptive_avg_pool1d",
    nn.AdaptiveAvgPool2d: "adaptive_avg_pool2d",
    nn.AdaptiveAvgPool3d: "adaptive_avg_pool3d",
    nn.Flatten: "flatten",
    nn.Unflatten: "unflatten",
    nn.Identity: "identity",
    nn.ZeroPad1d: "pad",
    nn.ZeroPad2d: "pad",
    nn.ZeroPad3d: "pad",
    nn.ReflectionPad1d: "pad",
    nn.ReflectionPad2d: "pad",
    nn.ReflectionPad3d: "pad",
    nn.ReplicationPad1d: "pad",
    nn.ReplicationPad2d: "pad",
    nn.ReplicationPad3d: "pad",
    nn.CircularPad1d: "pad",
    nn.CircularPad2d: "pad",
    nn.CircularPad3d: "pad",
    nn.Upsample: "interpolate",
    nn.UpsamplingNearest2d: "interpolate",
    nn.UpsamplingBilinear2d: "interpolate",
    nn.PixelShuffle: "pixel_shuffle",
    nn.PixelUnshuffle: "pixel_unshuffle",
    nn.ChannelShuffle: "channel_shuffle",
    nn.Softmax: "softmax",
    nn.LogSoftmax: "log_softmax",
    nn.Sigmoid: "sigmoid",
}


def operation_of(node: Node, modules: Mapping[str, nn.Module]) -> str:
    """Return the plain name of what a node does; a module has the name of its function."""
    if node.op != "call_module":
        return node_operation(node) or node.op
    module = modules[str(node.target)]
    if isinstance(module, _BatchNorm):
        return "batch_norm"
    if isinstance(module, _DropoutNd):
        return "dropout"
    return _MODULES.get(type(module), type(module).__name__)


def kind_of(node: Node, modules: Mapping[str, nn.Module]) -> Kind:
    """Return what a node does to the signals that pass it."""
    return KINDS.get(operation_of(node, modules), Kind.OBSTACLE)
