"""After every function, answered or refused, the model, its input and the process are as before."""

import contextlib
import random
import sys
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.errors import GatelabError
from tests.attacks.calls import CALLS, MORE_CALLS
from tests.attacks.outcomes import ChangedStateError, RawError, refusal
from tests.attacks.state.snapshots import compare, snapshot

pytestmark = pytest.mark.attack("state and threads")

EVERY = CALLS | MORE_CALLS


class Talkative(nn.Module):
    """A model whose forward leaves traces: attributes, a counter in a buffer, a list, a draw of random numbers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 2))
        self.register_buffer("calls", torch.zeros(()))
        self.seen: list[int] = []
        self.last = None

    def forward(self, x):
        self.calls += 1
        self.seen.append(len(x))
        y = self.body(x)
        self.last = y.shape
        return y


class Locked(Talkative):
    """The same, with a lock: it cannot be deep-copied."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x):
        with self.lock:
            return super().forward(x)


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def overwriting() -> nn.Module:
    """A model that starts with an operation in place: it would write into the caller's examples."""
    torch.manual_seed(0)
    return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def refused() -> nn.Module:
    """A model that most functions refuse, in the middle of their work."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


class Breaking(nn.Module):
    """A model that raises in the middle of forward, after it has changed itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.tries = 0

    def forward(self, x):
        self.calls += 1
        self.tries += 1
        F.relu(self.layer(x))
        raise KeyError("a user's mistake")


def prepared(kind) -> nn.Module:
    """A model in evaluation mode with hooks, a frozen weight and a gradient."""
    model = kind().eval()
    model.train_flag_of_user = True
    first = next(model.parameters())
    first.grad = torch.ones_like(first)
    list(model.parameters())[-1].requires_grad_(False)
    model.register_forward_hook(lambda _module, _args, output: output)
    return model


class Changed(nn.Module):
    """A network whose hidden units are changed by a function."""

    def __init__(self, change):
        super().__init__()
        self.first, self.last, self.change = nn.Linear(3, 4), nn.LazyLinear(2), change
        self(torch.zeros(1, 3))

    def forward(self, x):
        return self.last(self.change(F.relu(self.first(x))))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "kind", [plain, Talkative, Locked, overwriting, refused, Breaking], ids=lambda kind: kind.__name__
)
def test_nothing_is_left_behind(kind, name):
    model, x = prepared(kind), torch.randn(4, 3)
    before = snapshot(model, x)
    raw = None
    try:
        EVERY[name](model, x)
    except GatelabError:
        pass
    except KeyError as error:  # the user's own
        raw = None if kind is Breaking else error
    except Exception as error:
        raw = error
    compare(before, snapshot(model, x))
    if raw is not None:
        raise RawError(f"{type(raw).__name__}: {raw}") from raw


def test_global_generator_of_an_initialiser():
    """torch hands some initialisers to a mode as one function, and they draw inside it."""

    class Starting(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = plain()

        def forward(self, x):
            start = torch.empty(1, 1)
            nn.init.kaiming_uniform_(start)
            nn.init.xavier_normal_(start)
            nn.init.trunc_normal_(start)
            nn.init.orthogonal_(start)
            return self.body(x) + 0.0 * start

    model, x = Starting(), torch.randn(4, 3)
    before = snapshot(model, x)
    with contextlib.suppress(GatelabError):
        gl.capture_gates(model, x)
    compare(before, snapshot(model, x))


@pytest.mark.parametrize("name", CALLS)
def test_global_generator_of_a_random_model(name):
    """A forward that draws must not move the caller's random numbers, whether it is refused or not."""

    class Drawing(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = plain()

        def forward(self, x):
            return self.body(x) + 0.0 * torch.rand(1)

    model, x = Drawing(), torch.randn(4, 3)
    before = snapshot(model, x)
    with contextlib.suppress(GatelabError):
        CALLS[name](model, x)
    compare(before, snapshot(model, x))


HIDDEN_DRAWS = {
    "dropout": lambda h: F.dropout(h, 0.5, training=True),
    "dropout of channels": lambda h: F.dropout1d(h[:, :, None], 0.5, training=True)[:, :, 0],
    "alpha dropout": lambda h: F.alpha_dropout(h, 0.5, training=True),
    "RReLU": lambda h: F.rrelu(h, training=True),
    "Gumbel softmax": F.gumbel_softmax,
    "fractional maxima": lambda h: F.fractional_max_pool2d(h[:, None, :, None].expand(-1, -1, -1, 4), 2, 2).flatten(1),
    "attention with dropout": lambda h: F.scaled_dot_product_attention(*[h[:, None]] * 3, dropout_p=0.5)[:, 0],
    "a gamma distribution": lambda h: h * torch.distributions.Gamma(1.0, 1.0).sample(),
    "a binomial distribution": lambda h: h * torch.distributions.Binomial(3, torch.tensor(0.5)).sample(),
    "a dropout that is thrown away": lambda h: (F.dropout(h, 0.5), h)[1],
}  # fmt: skip


@pytest.mark.parametrize("name", ["capture_gates", "neural_tangent_kernel"])
@pytest.mark.parametrize("how", HIDDEN_DRAWS)
def test_draws_inside_a_function_are_refused(how, name):
    """They reach torch's global generator past any generator of gatelab's own; once a single example was answered."""
    model, x = Changed(HIDDEN_DRAWS[how]), torch.randn(1, 3)
    before = snapshot(model, x)
    assert "random numbers" in refusal(lambda: CALLS[name](model, x))
    compare(before, snapshot(model, x))


USED = {
    "NumPy": lambda h: h * np.random.rand(),  # noqa: NPY002
    "NumPy, on the way to a gate": lambda h: F.relu(h - np.random.rand()),  # noqa: NPY002
    "Python": lambda h: h * random.random(),
}
IN_VAIN = {
    "NumPy": lambda h: h + 0 * np.random.rand(),  # noqa: NPY002
    "NumPy, no number": lambda h: (np.random.randint(0, 3, size=0), h)[1],  # noqa: NPY002
    "Python": lambda h: h + 0 * random.randrange(3),
    "Python, on the way to a gate": lambda h: F.relu(h - 0.1) if random.random() < 2 else h,
}
DRAWN = ["capture_gates", "neural_tangent_kernel", "path_features", "read"]


def _states():
    return repr(np.random.get_state()), random.getstate(), torch.get_rng_state().tolist()  # noqa: NPY002


@pytest.fixture
def only_thread(monkeypatch):
    """Test runners have threads of their own, and beartype, which the suite uses, draws."""
    monkeypatch.setattr("gatelab.observe.chance.threading.active_count", lambda: 1)
    monkeypatch.delitem(sys.modules, "beartype")


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("how", USED)
def test_output_that_depends_on_hidden_draws(how, name, only_thread):
    """Each run draws other numbers, so a dependence shows; the caller's states are put back."""
    model, before = Changed(USED[how]), _states()
    assert refusal(lambda: CALLS[name](model, torch.ones(2, 3)))
    if before != _states():
        raise ChangedStateError("a random state has moved")


@pytest.mark.parametrize("how", ["NumPy", "Python"])
def test_the_source_of_hidden_draws_is_named(how, only_thread):
    assert f"draws from {how}; draw them outside forward" in refusal(
        lambda: gl.read(Changed(USED[how]), torch.ones(2, 3))
    )


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("how", IN_VAIN)
def test_draws_in_vain(how, name, only_thread):
    """They do no harm (pytorchcv's FractalNet makes them), and the caller's states are put back."""
    model, before = Changed(IN_VAIN[how]), _states()
    CALLS[name](model, torch.ones(2, 3))
    if before != _states():
        raise ChangedStateError("a random state has moved")


@pytest.mark.parametrize("name", DRAWN)
def test_forward_that_seeds_torch(name, only_thread):
    model = Changed(lambda h: (torch.manual_seed(0), h)[1])
    before = _states()
    assert "random state of torch" in refusal(lambda: CALLS[name](model, torch.ones(2, 3)))
    if before != _states():
        raise ChangedStateError("a random state has moved")


def _accepted(call, model):
    try:
        call(model, torch.ones(2, 3))
    except GatelabError:
        return False
    return True


@pytest.mark.parametrize("call", [gl.read, gl.neural_tangent_kernel])
@pytest.mark.parametrize("share", [0.5, 0.3, 0.1])
@pytest.mark.parametrize("draw", [np.random.rand, random.random], ids=["NumPy", "Python"])
def test_output_that_changes_rarely(draw, share, call, only_thread):
    """Of 40 calls 0.4 may miss a change in one of ten runs: five or more with probability 5e-5. Once 30 did."""
    model = Changed(lambda h: h * (2 if draw() < share else 1))
    assert sum(_accepted(call, model) for _ in range(40)) < (5 if share < 0.2 else 1)


PAIRED = {"NumPy": np.random.standard_normal, "Python": lambda: random.gauss(0, 1)}


@pytest.mark.parametrize("how", PAIRED)
def test_output_that_depends_on_a_number_left_over(how, only_thread):
    """Normal numbers come in pairs, and the second one is kept: every run would begin with it."""
    PAIRED[how]()
    assert refusal(lambda: gl.read(Changed(lambda h: h * PAIRED[how]()), torch.ones(2, 3)))


OWN = {
    "NumPy's generator": lambda: np.random.default_rng(0),
    "NumPy's old generator": lambda: np.random.RandomState(0),
    "Python's generator": lambda: random.Random(0),
    "the system's generator": random.SystemRandom,
}


class Noisy(Changed):
    """A network with a generator as an attribute; a copy of it draws the same numbers as every other copy."""

    def __init__(self, noise, amount):
        super().__init__(nn.Identity())
        self.noise, self.amount = noise, amount

    def forward(self, x):
        return super().forward(x) + (self.amount * self.noise.uniform(0, 1) if hasattr(self, "noise") else 0)


@pytest.mark.parametrize("name", ["capture_gates", "neural_tangent_kernel", "path_features", "read", "to_dgn"])
@pytest.mark.parametrize("kind", OWN)
def test_output_that_depends_on_a_generator_of_the_model(kind, name):
    model = nn.Sequential(Noisy(OWN[kind](), 1.0))
    told = refusal(lambda: CALLS[name](model, torch.ones(2, 3)))
    assert ("different answers" if name == "neural_tangent_kernel" else "draws from its generator '0.noise'") in told


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("kind", OWN)
def test_draws_in_vain_from_a_generator_of_the_model(kind, name):
    model, same = Noisy(OWN[kind](), 0.0), OWN[kind]()
    CALLS[name](model, torch.ones(2, 3))
    if kind != "the system's generator" and model.noise.uniform(0, 1) != same.uniform(0, 1):
        raise ChangedStateError("the model's generator has moved")


def test_a_generator_that_forward_leaves_alone_costs_one_run():
    runs = []
    model = Changed(lambda h: (runs.append(1), h)[1])
    model.noise = random.Random(0)
    runs.clear()
    gl.read(model, torch.ones(2, 3))
    assert len(runs) == 2


NOT_LOOKED_FOR = {
    "a larger batch": lambda h: h * np.random.rand() if len(h) > 3 else h,  # noqa: NPY002
    "a generator made in forward": lambda h: h * np.random.default_rng().random(),
}


@pytest.mark.parametrize(
    ("how", "accepted"),
    [("a larger batch", ["capture_gates", "read"]), ("a generator made in forward", ["read"])],
    ids=["a larger batch", "a generator made in forward"],
)
def test_draws_that_are_not_looked_for(how, accepted, only_thread):
    """The limits that docs/promise.md names."""
    model, x = Changed(NOT_LOOKED_FOR[how]), torch.randn(6, 3)
    for name in ("capture_gates", "neural_tangent_kernel", "read"):
        if name in accepted:
            CALLS[name](model, x)
        else:
            assert refusal(lambda name=name: CALLS[name](model, x))


@pytest.fixture
def other_thread():
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    yield
    done.set()
    other.join()


@pytest.mark.parametrize(
    "name", ["capture_gates", "neural_tangent_kernel", "path_features", "read", "to_dgn", "top_paths"]
)
@pytest.mark.parametrize("how", ["NumPy", "Python"])
def test_answer_that_depends_on_hidden_draws_while_other_threads_run(how, name, other_thread, monkeypatch):
    """Whose draws moved the state cannot be told; but two runs of one forward differ, and that is found."""
    monkeypatch.delitem(sys.modules, "beartype")
    assert refusal(lambda: CALLS[name](Changed(USED[how]), torch.ones(2, 3)))


def test_states_are_left_alone_while_other_threads_run(other_thread):
    """A state that is put back would give another thread the same numbers again."""
    drawn = []
    model = Changed(lambda h: (drawn.append(np.random.rand()), h)[1])  # noqa: NPY002
    gl.read(model, torch.ones(2, 3))
    assert np.random.rand() not in drawn  # noqa: NPY002
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(
    "name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel", "to_dgn", "top_paths"]
)
def test_under_the_callers_settings(name):
    """Unusual settings are still there afterwards."""
    model, x = plain(), torch.randn(4, 3)
    threads = torch.get_num_threads()
    with torch.no_grad():
        torch.set_num_threads(2)
        torch.use_deterministic_algorithms(True)
        try:
            before = snapshot(model, x)
            EVERY[name](model, x)
            compare(before, snapshot(model, x))
        finally:
            torch.use_deterministic_algorithms(False)
            torch.set_num_threads(threads)


WRITES = {
    "in place": lambda p: p.add_(1e-3),
    "through .data": lambda p: p.data.add_(1e-3),
    "through detach": lambda p: p.detach().add_(1e-3),
    "through a view": lambda p: p.view(-1).add_(1e-3),
    "an item": lambda p: p.__setitem__(0, 0.5),
    "an operator that is called by name": lambda p: p.__iadd__(1e-3),
    "out=": lambda p: torch.add(p, 1e-3, out=p),
    "an initialiser": nn.init.normal_,
    "through NumPy": lambda p: p.detach().numpy().fill(0.5),
    "another .data": lambda p: setattr(p, "data", p.data * 1.001),
    "a list of parameters": lambda p: torch._foreach_add_([p], 1e-3),
}


@pytest.mark.parametrize("name", ["capture_gates", "neural_tangent_kernel", "top_paths", "to_dgn", "count_paths"])
@pytest.mark.parametrize("how", WRITES)
def test_forward_that_writes_into_its_own_weights_is_refused(how, name):
    class Restless(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = plain()

        def forward(self, x):
            with torch.no_grad():
                WRITES[how](next(self.body.parameters()))
            return self.body(x)

    model, x = Restless(), torch.randn(4, 3)
    before = snapshot(model, x)
    # The tangent kernel differentiates copies of the parameters; writing the same number twice does no harm there.
    refused = contextlib.suppress(GatelabError) if name == "neural_tangent_kernel" else pytest.raises(GatelabError)
    with refused:
        EVERY[name](model, x)
    compare(before, snapshot(model, x))


@pytest.mark.parametrize("name", ["to_dgn", "to_dlgn", "to_dln"])
def test_twin_shares_nothing(name):
    """Training a twin does not train the model."""
    model, x = plain(), torch.randn(4, 3)
    twin = gl.to_dgn(model, gl.Regime.DNPFL) if name == "to_dgn" else getattr(gl, name)(model)
    before = snapshot(model, x)
    optimiser = torch.optim.SGD(twin.parameters(), lr=1.0)
    twin(x).square().sum().backward()
    optimiser.step()
    compare(before, snapshot(model, x))


def test_gates_are_not_changed_through_what_they_return():
    pattern = gl.capture_gates(plain(), torch.randn(4, 3))
    first = pattern[pattern.layers[0]].clone()
    pattern[pattern.layers[0]].fill_(True)
    assert torch.equal(pattern[pattern.layers[0]], first)
