"""One example, with or without a batch axis."""

import torch
from torch import Tensor, nn

from gatelab.errors import GatelabError, InputError
from gatelab.observe import examples, observable, refuse_unless_finite, stand_in, undisturbed


def one_example(model: nn.Module, x: Tensor) -> Tensor:
    """Return x with a batch axis of length one, whether or not the caller gave one.

    Raises:
        InputError: x holds several examples, or does not fit the model.

    Example:
        >>> one_example(nn.Linear(2, 1), torch.zeros(2)).shape, one_example(nn.Linear(2, 1), torch.zeros(1, 2)).shape
        (torch.Size([1, 2]), torch.Size([1, 2]))
    """
    model = observable(model)
    refuse_unless_finite(dict(model.named_parameters()))
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.is_nested or x.ndim == 0:
        return examples(x, model)  # raises the error
    failure: Exception | None = None
    for candidate in (x, x.unsqueeze(0), x.reshape(1, -1))[x.ndim == 1 :]:
        shaped = examples(candidate, model)
        # A batch axis may have any length; an axis of channels or positions may not.
        failure = _failure(model, torch.cat([shaped[:1]] * (shaped.shape[0] + 1)))
        if failure is None and shaped.shape[0] > 1:
            raise InputError(f"x has shape {tuple(x.shape)}, {shaped.shape[0]} examples; give one example, e.g. x[0]")
        if failure is None:
            return shaped
    raise InputError(f"the model does not take x of shape {tuple(x.shape)}; give one example that fits: {failure}")


def _failure(model: nn.Module, x: Tensor) -> Exception | None:
    """Return torch's error if the model does not run on x, or None."""
    model = stand_in(model)
    copies = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}  # forward may write
    try:
        with undisturbed(model, x, copies) as run, torch.no_grad():
            run(x)
    except GatelabError:
        raise
    except (RuntimeError, IndexError, ValueError) as error:
        return error
    return None
