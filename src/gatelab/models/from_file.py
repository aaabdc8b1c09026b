"""Load a user's network from a Python file, and its weights from a file beside it."""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.models.states import load_state
from gatelab.work.user_code import from_file

_WRAPPERS = ("module.", "_orig_mod.", "model.")  # DataParallel, torch.compile and Lightning put these before each name
_INSIDE = ("state_dict", "model_state_dict", "model")  # where training scripts keep the weights in a checkpoint


def factory_from_file(place: str) -> Callable[[], Any]:
    """Return the function or class that ``file.py:factory`` names."""
    return from_file(place, "model")


def seeded_network(factory: Callable[[], Any], seed: int) -> nn.Module:
    """Call a factory under a seed of torch, NumPy and ``random``, and restore their global states."""
    name = getattr(factory, "__name__", factory)
    needed = _required_arguments(factory)
    if needed:
        raise InputError(
            f"{name} needs arguments ({', '.join(needed)}); gatelab calls it without any. Write a function that fills "
            f"them in: def make(): return {name}({', '.join(f'{argument}=…' for argument in needed)})"
        )
    with torch.random.fork_rng(devices=[]), _other_seeds(seed):
        torch.manual_seed(seed)
        try:
            made = factory()
        except (Exception, SystemExit) as error:
            raise InputError(
                f"{name}() failed: {type(error).__name__}: {error}; make it work without arguments"
            ) from error
    if not isinstance(made, nn.Module):
        raise InputError(f"{name} returned {type(made).__name__}; make it return an nn.Module")
    return made


@contextmanager
def _other_seeds(seed: int) -> Iterator[None]:
    """Seed NumPy's and Python's global generators for a while: some networks draw their weights with them."""
    held = np.random.get_state(), random.getstate()  # noqa: NPY002  the state that a user's code draws from
    try:
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        yield
    finally:
        np.random.set_state(held[0])  # noqa: NPY002
        random.setstate(held[1])


def _required_arguments(factory: Any) -> list[str]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # functions of C extensions have no signature
        return []
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.default is p.empty and p.kind in named]


def load_weights(network: nn.Module, weights: Path) -> None:
    """Load weights from a file: safetensors, or a state dict written by torch.save, read without unpickling code.

    Raises:
        InputError: the file cannot be read, or does not fit the network; the message lists all differences.
    """
    state = _read(weights)
    problems = _differences(state, network)
    if problems:
        for prefix in _WRAPPERS:
            bare = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
            if all(name.startswith(prefix) for name in state) and not _differences(bare, network):
                state, problems = bare, []
                break
    if problems:
        listed = "\n  ".join(problems)
        raise InputError(
            f"{weights} does not hold the weights of this network:\n  {listed}\nGive the file that was saved from this "
            "architecture, or change the class to match"
        )
    try:
        load_state(network, state)
    except RuntimeError as error:
        raise InputError(f"{weights} does not hold the weights of this network: {error}") from error
    broken = [name for name, tensor in state.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
    if broken:
        raise InputError(
            f"{weights}: {', '.join(broken[:5])} hold NaN or infinite values: it diverged; use an earlier file"
        )


def _read(weights: Path) -> dict[str, Tensor]:
    if not weights.is_file():
        raise InputError(f"there is no file {weights}; give the file with the network's weights")
    try:
        if weights.suffix == ".safetensors":
            return load_file(weights)
        held = torch.load(weights, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise InputError(
            f"{weights} contains more than weights, and gatelab runs no code from a file; save model.state_dict(), "
            "best with safetensors.torch.save_file"
        ) from error
    except (OSError, SafetensorError, RuntimeError, AttributeError, TypeError, ValueError, EOFError) as error:
        raise InputError(f"{weights} does not hold the weights of this network: {error}") from error
    for key in _INSIDE:
        if isinstance(held, Mapping) and isinstance(held.get(key), Mapping):
            held = held[key]
    pairs = held.items() if isinstance(held, Mapping) else [(None, None)]
    if not all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in pairs):
        raise InputError(
            f"{weights} does not hold the weights of this network: it is not a state dict; save model.state_dict()"
        )
    return dict(held)


def _differences(state: Mapping[str, Tensor], network: nn.Module) -> list[str]:
    """Return every missing name, unknown name and differing shape."""
    own = network.state_dict()
    missing = [f"missing from the file: {name} {tuple(own[name].shape)}" for name in own if name not in state]
    unknown = [f"unknown to the network: {name} {tuple(state[name].shape)}" for name in state if name not in own]
    shapes = [
        f"{name}: the file has {tuple(state[name].shape)}, the network {tuple(own[name].shape)}"
        for name in own
        if name in state and own[name].shape != state[name].shape
    ]
    kinds = [
        f"{name}: the file has {state[name].dtype}, the network {own[name].dtype}"
        for name in own
        if name in state and own[name].is_floating_point() != state[name].is_floating_point()
    ]
    return missing + unknown + shapes + kinds
