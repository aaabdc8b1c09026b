"""Seeded draws of code that knows only torch's global generator: the same with and without other threads."""

import random
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gatelab.errors import InputError
from gatelab.models.from_file import seeded_network
from gatelab.models.redraw import redrawn
from gatelab.work.chance import OWN_THREADS, is_alone, seeded_chance

X = torch.linspace(-2, 2, 48).view(6, 8)
INPLACE = ("exponential_", "cauchy_", "log_normal_", "normal_", "uniform_", "bernoulli_")
DRAWS = {
    "layers": lambda: torch.cat([p.flatten() for p in nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.Linear(3, 2), nn.LSTM(2, 2), nn.Embedding(3, 2)).parameters()]),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, dtype=X.dtype).train()(X[None]),
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(4, 5)),
    "truncated": lambda: nn.init.trunc_normal_(torch.empty(4, 5)),
    "sparse": lambda: nn.init.sparse_(torch.empty(6, 5), 0.3),
    "rand": lambda: torch.rand(3), "randn_like": lambda: torch.randn_like(X),
    "randint": lambda: torch.randint(2, 9, (4,)), "randperm": lambda: torch.randperm(9),
    "normal": lambda: torch.normal(X, 1.0),
    "multinomial": lambda: torch.multinomial(X.sigmoid(), 3), "poisson": lambda: torch.poisson(X.abs()),
    "dropout": lambda: F.dropout(X, 0.5), "alpha dropout": lambda: F.alpha_dropout(X, 0.5, training=True),
    "rrelu": lambda: F.rrelu(X, training=True), "gumbel": lambda: F.gumbel_softmax(X),
    "its own seed": lambda: torch.manual_seed(99) and torch.rand(3),
    **{name: (lambda name=name: getattr(X.clone(), name)()) for name in INPLACE},
}  # fmt: skip


@contextmanager
def company():
    """Another thread that might draw."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def drawn(seed, draw):
    with seeded_chance(seed):
        return torch.cat([draw().flatten(), draw().flatten()]).detach()


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_numbers_with_and_without_other_threads(name):
    alone = drawn(5, DRAWS[name])
    with company():
        before = torch.get_rng_state()
        beside = drawn(5, DRAWS[name])
        if name != "its own seed":  # the code's own act, which cannot be undone without rewinding the other thread
            assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(alone, beside)
    if name != "its own seed":
        assert not torch.equal(alone, drawn(6, DRAWS[name]))


def test_threads_that_draw_nothing_do_not_count():
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name=OWN_THREADS + "test", daemon=True)
    thread.start()
    assert is_alone()
    done.set()
    thread.join()
    with company():
        assert not is_alone()


def state_is_restored():
    with torch.random.fork_rng(devices=[]):
        return nn.Linear(2, 2)


@pytest.mark.parametrize("code", [state_is_restored, lambda: torch.seed() and nn.Linear(2, 2)])
def test_what_would_rewind_other_threads_is_refused(code):
    assert isinstance(seeded_network(code, 0), nn.Module)
    with company(), pytest.raises(InputError, match=r"while other threads run; draw with a torch\.Generator"):
        seeded_network(code, 0)


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_weights_from_other_generators(draw, monkeypatch):
    """Seeded and put back alone; refused beside other threads, for what they make would be different each time."""
    monkeypatch.delitem(sys.modules, "beartype", raising=False)  # it draws itself; see other_states

    def made():
        net = nn.Linear(1, 1)
        nn.init.constant_(net.weight, draw())
        return net

    assert torch.equal(seeded_network(made, 3).weight, seeded_network(made, 3).weight)
    with company(), pytest.raises(InputError, match=r"made\(\) makes a different network each time: it draws from"):
        seeded_network(made, 3)


def test_others_may_draw_from_numpy_meanwhile(monkeypatch):
    """The network does not depend on it, so it is taken."""
    monkeypatch.delitem(sys.modules, "beartype", raising=False)

    def made():
        np.random.rand()  # noqa: NPY002  as if by another thread
        return nn.Linear(3, 3)

    alone = seeded_network(made, 3)
    with company():
        assert torch.equal(seeded_network(made, 3).weight, alone.weight)


LAYER = nn.Linear(20, 20)  # made once: its constructor draws from the global generator


@pytest.mark.parametrize(
    "make", [lambda: seeded_network(lambda: nn.Linear(20, 20), 1), lambda: redrawn(LAYER, 1).network]
)
def test_a_program_that_draws_meanwhile_gets_the_numbers_it_would_get_alone(make):
    count, wanted = 100, make()
    torch.manual_seed(3)
    expected = torch.stack([torch.rand(()) for _ in range(count)])
    torch.manual_seed(3)
    done, faults = threading.Event(), []

    def work():
        while not done.is_set():
            made = make()
            if not all(map(torch.equal, made.parameters(), wanted.parameters())):
                faults.append("other weights")

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    own = torch.stack([torch.rand(()) for _ in range(count) if not done.wait(1e-4)])
    done.set()
    for thread in threads:
        thread.join()
    assert torch.equal(own, expected)
    assert not faults
