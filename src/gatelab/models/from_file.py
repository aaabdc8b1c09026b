"""Load a user's network from a Python file."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from gatelab.errors import InputError
from gatelab.work.executor import USER_MODULE


def factory_from_file(place: str) -> Callable[[], Any]:
    """Return the function or class that ``file.py:factory`` names."""
    path, _, name = place.rpartition(":")
    if not path or not name:
        raise InputError(
            f"'{place}' does not name a model; write file.py:factory, where factory is a function or class"
        )
    if not Path(path).is_file():
        raise InputError(f"'{place}': there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"{USER_MODULE}{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(Path(path).resolve().parent))  # like a script, it may import files next to it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise InputError(f"{path} has no '{name}'; it has {', '.join(public[:10]) or 'nothing'}")
    return getattr(module, name)


def seeded_network(factory: Callable[[], Any], seed: int) -> nn.Module:
    """Call a factory under a seed, and restore the global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        name = getattr(factory, "__name__", factory)
        try:
            made = factory()
        except Exception as error:
            raise InputError(
                f"{name}() failed: {type(error).__name__}: {error}; it must work without arguments"
            ) from error
    if not isinstance(made, nn.Module):
        raise InputError(f"{name} returned {type(made).__name__}; it must return an nn.Module")
    return made


def load_weights(network: nn.Module, weights: Path) -> None:
    """Load weights from a file: safetensors, or a state dict written by torch.save."""
    try:
        is_safe = weights.suffix == ".safetensors"
        state = load_file(weights) if is_safe else torch.load(weights, map_location="cpu", weights_only=True)
        network.load_state_dict(state)
    except UnpicklingError as error:
        raise InputError(f"{weights} contains more than weights; save model.state_dict()") from error
    except (OSError, SafetensorError, RuntimeError, AttributeError, TypeError, ValueError, EOFError) as error:
        raise InputError(f"{weights} does not hold the weights of this network: {error}") from error
