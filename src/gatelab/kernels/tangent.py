"""The neural tangent kernel of any model, without Jacobians where the structure allows it."""

from collections.abc import Iterable
from difflib import get_close_matches

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.kernels.gradients import Gradients, Outputs
from gatelab.kernels.tiles import fill
from gatelab.observe import examples, observable, stand_in

Wrt = nn.Module | nn.Parameter | str | Iterable[str | nn.Parameter] | None


def neural_tangent_kernel(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."] | None = None,
    wrt: Wrt = None,
    outputs: Outputs = "trace",
    *,
    batch_size: int | None = None,
) -> Float[Tensor, "n m"] | Float[Tensor, "n m k k"]:
    r"""The Gram matrix of the gradients of the output with respect to the parameters (npk, Section 1.1).

    .. math:: K(s, s') = \langle \nabla_\Theta \hat y(x_s), \nabla_\Theta \hat y(x_{s'}) \rangle

    For each dense layer this is (Gram of inputs) ⊙ (Gram of back-propagated signals); no Jacobian is formed. For
    convolutions the cheaper of that and per-example gradients is taken; parameters used in any other way go through
    ``torch.func``. Two examples are checked against plain autograd; should they differ, all gradients are computed one
    example at a time. Memory is the result, the layers' inputs and signals, and one tile.

    Args:
        model: any module whose answer for one example does not depend on the others.
        x: examples.
        y: other examples, for a rectangular kernel; None means x.
        wrt: only these parameters count: a sub-module, parameters, or parameter names. Gives K^V and K^F of a
            deep gated network.
        outputs: "trace" sums the kernels of the outputs; "full" gives all pairs of outputs, (n, m, k, k); a number
            gives the kernel of that output.
        batch_size: examples per forward and backward pass; None takes all at once.

    Example:
        >>> net = nn.Linear(2, 1)
        >>> neural_tangent_kernel(net, torch.tensor([[1.0, 2.0]])).tolist()   # ‖x‖² + 1, for weight and bias
        [[6.0]]
    """
    model = stand_in(observable(model))
    x = examples(x, model)
    other = None if y is None else examples(y, model, name="y")
    if other is not None and other.shape[1:] != x.shape[1:]:
        raise InputError(f"x has examples of shape {tuple(x.shape[1:])}, y of shape {tuple(other.shape[1:])}")
    gradients = Gradients(model, parameter_names(model, wrt), x[:1], outputs)
    rows, columns = gradients.factors(x, other, batch_size)

    full = outputs == "full"
    shape = (x.shape[0], (x if other is None else other).shape[0], *((gradients.outputs,) * 2 if full else ()))
    kernel = torch.zeros(shape, dtype=x.dtype, device=x.device)

    def tile(i: slice, j: slice) -> None:
        block = kernel[i, j]
        for row, column in zip(rows, columns, strict=True):
            # The factors of one layer are of one kind on both sides: the plan is made from shapes alone.
            block += row.full_tile(column, i, j) if full else row.trace_tile(column, i, j)  # pyright: ignore

    fill(kernel, tile, symmetric=other is None)
    return kernel


def parameter_names(model: nn.Module, wrt: Wrt = None) -> list[str]:
    """The names, in the model's order, of the parameters that ``wrt`` means."""
    own = dict(model.named_parameters())
    if wrt is None:
        return list(own)
    asked = [wrt] if isinstance(wrt, str | Tensor) else list(wrt.parameters() if isinstance(wrt, nn.Module) else wrt)
    every_name = dict(model.named_parameters(remove_duplicate=False))  # a tied parameter goes by any of its names
    for name in asked:
        if isinstance(name, str) and name not in every_name:
            close = get_close_matches(name, every_name, n=3)
            hint = f"did you mean {', '.join(close)}?" if close else f"it has {', '.join(list(own)[:8])}"
            raise InputError(f"wrt: the model has no parameter '{name}'; {hint}")
    wanted = {id(every_name[part] if isinstance(part, str) else part) for part in asked}
    names = [name for name, parameter in own.items() if id(parameter) in wanted]
    if not names:
        raise InputError(f"wrt: {type(wrt).__name__} has no parameter that belongs to the model")
    return names
