"""Random numbers of gatelab's own for models that draw them, so that the caller's random state stays as it is."""

import itertools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode, _push_mode
from torch.utils._python_dispatch import TorchDispatchMode

from gatelab.errors import InputError

# Functions that draw random numbers and take a generator.
RANDOM = frozenset(
    """
    rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial normal poisson uniform
    exponential random cauchy geometric log_normal kaiming_uniform
    """.split()
)
# Functions that may draw random numbers internally, from torch's global generator.
MAY_DRAW = frozenset(
    """
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout native_dropout rrelu
    gumbel_softmax fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
    fractional_max_pool3d_with_indices multi_head_attention_forward scaled_dot_product_attention standard_gamma
    sample_dirichlet binomial lstm gru rnn_tanh rnn_relu pca_lowrank svd_lowrank lobpcg
    """.split()
)


@contextmanager
def random_states_kept() -> Iterator[list[str]]:
    """Put the caller's random states back, and give further runs of a forward that draws other numbers.

    A record cannot see draws from NumPy or Python. But two runs differ, so comparing their outputs finds a forward that
    depends on them, and one that draws in vain does no harm. A forward that seeds torch is refused: it would take from
    the caller what comes next.

    While other threads run, states are compared but not set: other threads would draw the same numbers again.

    Yields:
        A list, which holds after the block the libraries whose random numbers were drawn, by this thread or another.

    Raises:
        InputError: the forward changed torch's random state other than through torch's functions.
    """
    drawn: list[str] = []
    before = _states()
    if threading.active_count() > 1:
        yield drawn
        drawn += _by_models(_moved(before))
        return
    start, torch_before = dict(before), torch.get_rng_state()
    for name in _DRAWN_FROM:
        _GENERATORS[name].renew()
        start[name] = _GENERATORS[name].state()
    try:
        yield drawn
    finally:
        moved_here = _moved(start)
        _DRAWN_FROM.update(moved_here)
        for name in _DRAWN_FROM:
            _RESTORE[name](before[name])
        drawn += _by_models(moved_here)
        moved = not torch.equal(torch_before, torch.get_rng_state())
        if moved:
            torch.set_rng_state(torch_before)
    if moved:
        raise InputError(
            "the model's forward changes the random state of torch, so its output may depend on chance; draw random "
            "numbers outside forward"
        )


def _states() -> dict[str, Any]:
    return {name: generator.state() for name, generator in _GENERATORS.items()}


def _moved(before: dict[str, Any]) -> list[str]:
    return [name for name, state in _states().items() if not _same_state(state, before[name])]


def _by_models(drawn: list[str]) -> list[str]:
    """Leave Python out under beartype, which draws in every function that it checks."""
    return [name for name in drawn if name != "Python" or "beartype" not in sys.modules]


class OwnGenerators:
    """The generators of NumPy and Python that a model's modules hold as attributes.

    A copy of the model starts from their present state, so its first numbers are the same as in every other copy.

    Example:
        >>> model = nn.ReLU()
        >>> model.noise = random.Random(0)
        >>> held = OwnGenerators(model)
        >>> _ = model.noise.random()
        >>> held.moved()
        ['noise']
    """

    def __init__(self, model: nn.Module):
        """Find the generators of ``model``, and remember their states."""
        self._held = {
            f"{path}.{name}".lstrip("."): _generator(value)
            for path, module in model.named_modules()
            for name, value in vars(module).items()
            if isinstance(value, _KINDS)
        }
        self._before = {name: generator.state() for name, generator in self._held.items()}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._held)

    def moved(self) -> list[str]:
        """Return the paths of those from which numbers were drawn since."""
        return [name for name, held in self._held.items() if not _same_state(held.state(), self._before[name])]

    def renew(self) -> None:
        """Give all of them numbers that no other copy of the model draws."""
        for generator in self._held.values():
            generator.renew()


@dataclass(frozen=True)
class _Generator:
    """A generator of random numbers."""

    state: Callable[[], Any]
    seed: Callable[[int], object]

    def renew(self) -> None:
        """Start it anew: no two runs draw the same numbers, nor half of a pair that an earlier run has left over."""
        self.seed(next(_SEEDS))


_KINDS = (np.random.Generator, np.random.RandomState, random.Random)


def _generator(source: Any) -> _Generator:
    """Give the generators of NumPy and Python, and the modules of the global ones, one interface."""
    if isinstance(source, np.random.Generator):
        bits = source.bit_generator
        return _Generator(lambda: bits.state, lambda seed: setattr(bits, "state", type(bits)(seed).state))
    if isinstance(source, random.SystemRandom):  # it has no state, and cannot be seeded: no two runs are the same
        return _Generator(object, source.seed)
    if hasattr(source, "getrandbits"):
        return _Generator(source.getstate, source.seed)
    return _Generator(lambda: source.get_state(legacy=False), source.seed)


_GENERATORS = {"NumPy": _generator(np.random), "Python": _generator(random)}
_RESTORE: dict[str, Callable[[Any], object]] = {"NumPy": np.random.set_state, "Python": random.setstate}


def _same_state(one: Any, other: Any) -> bool:
    """Whether two states are equal: nested tuples, dictionaries and arrays."""
    if isinstance(one, dict):
        return all(_same_state(part, other[key]) for key, part in one.items())
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


_DRAWN_FROM: set[str] = set()  # generators from which a forward has drawn since gatelab was imported
_SEEDS = itertools.count(2**31)  # beyond those that people choose


@contextmanager
def torch_state_kept() -> Iterator[None]:
    """Put torch's global generator back if something in the block has moved it; unmoved, it is not touched."""
    before = torch.get_rng_state()
    try:
        yield
    finally:
        if not torch.equal(before, torch.get_rng_state()):
            torch.set_rng_state(before)


class OwnChance(TorchFunctionMode):
    """Draws random numbers from its own generators, so that the caller's random state stays unchanged.

    Inside another one it takes the other's place: every call of a function would pass both.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generators: dict[torch.device, torch.Generator] = {}
        self._outer: OwnChance | None = None

    def __enter__(self) -> "OwnChance":
        if isinstance(_get_current_function_mode(), OwnChance):
            self._outer = _pop_mode()
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self._outer is not None:
            _push_mode(self._outer)
            self._outer = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        del types
        return self.run_by_chance(func, args, kwargs or {})

    def run_by_chance(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation; if it draws random numbers, from these generators."""
        name = getattr(func, "__name__", "").strip("_")
        if name in RANDOM and kwargs.get("generator") is None:
            given = (*args, *kwargs.values())
            like = next((argument for argument in given if isinstance(argument, Tensor)), torch.empty(0))
            device = torch.device(kwargs.get("device") or like.device)
            if device not in self._generators:
                self._generators[device] = torch.Generator(device).manual_seed(0)
            return func(*args, **{**kwargs, "generator": self._generators[device]})
        if name in MAY_DRAW:
            with _NoOtherChance():
                return func(*args, **kwargs)
        return func(*args, **kwargs)


class _NoOtherChance(TorchDispatchMode):
    """Refuses operations that can draw only from torch's global generator, such as dropout."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        del types
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and _draws(func, args, kwargs):
            raise InputError(
                f"the model draws random numbers ({func.overloadpacket.__name__}), so its output depends on "
                "chance; call model.eval(), and pass training=self.training to functions"
            )
        return func(*args, **kwargs)


def _draws(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether this call of an operation draws from the global generator."""
    schema = func._schema.arguments
    given = {argument.name: argument.default_value for argument in schema}
    given |= dict(zip(given, args, strict=False)) | kwargs
    idle = 0 in (given.get("p"), given.get("dropout_p")) or given.get("train", given.get("training")) is False
    return given.get("generator") is None and not idle


def refuse_generator(generator: object) -> None:
    """Raise InputError unless ``generator`` is a torch.Generator or None; a seed is neither."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise InputError(
            f"generator is {generator!r}; give a torch.Generator, such as torch.Generator().manual_seed(0), or None"
        )
