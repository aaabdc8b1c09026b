"""Eight threads that switch all the time: no error, and the results of one thread."""

import contextlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from gatelab.errors import GatelabError
from tests.attacks.calls import CALLS, MORE_CALLS, same
from tests.attacks.outcomes import ChangedStateError, RawError, SilentlyWrongError
from tests.attacks.state.test_state import Locked, Talkative, plain

pytestmark = pytest.mark.attack("state and threads")

THREADS = 8
# The pool of eight is the attack; how often each calls is for the slow suite.
ROUNDS = [1, pytest.param(8, marks=pytest.mark.slow)]
DRAWS = 60
NAMES = [
    name for name in (*CALLS, "OverlapKernel", "to_dlgn", "linear_regions_1d", "neural_path_features") if name != "read"
]
EVERY = CALLS | MORE_CALLS


@pytest.fixture(autouse=True)
def _restless():
    """Switch threads every ten microseconds."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def together(work, count: int = THREADS) -> list:
    """Run ``work(number)`` in threads that start at once; an error in one of them is a success of the attack."""
    start = threading.Barrier(count)

    def run(number):
        torch.set_default_dtype(torch.float64)  # of the process, but set before each thread's own work
        start.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run, number) for number in range(count)]
        try:
            return [future.result() for future in futures]
        except Exception as error:
            raise RawError(f"{type(error).__name__}: {error}") from error


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", NAMES)
def test_threads_with_models_of_their_own(name, rounds):
    x = torch.randn(4, 3)
    own = [plain() for _ in range(THREADS)]
    expected = EVERY[name](own[0], x)
    for ours in together(lambda number: [EVERY[name](own[number], x) for _ in range(rounds)]):
        if not all(same(one, expected) for one in ours):
            raise SilentlyWrongError("another result in a thread")


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("name", NAMES)
def test_threads_with_one_model(name, rounds):
    model, x = plain(), torch.randn(4, 3)
    expected = EVERY[name](model, x)
    for ours in together(lambda _number: [EVERY[name](model, x) for _ in range(rounds)]):
        if not all(same(one, expected) for one in ours):
            raise SilentlyWrongError("another result in a thread")


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("kind", [plain, Talkative, Locked], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel", "path_features", "top_paths"]
)
def test_users_own_forwards_meanwhile(kind, name, rounds):
    """Half of the threads just run the model: their answers, and those of gatelab, are as ever."""
    model, x = kind().eval(), torch.randn(4, 3)
    output, expected = model(x).detach(), EVERY[name](model, x)

    def work(number):
        if number % 2:
            return all(torch.equal(model(x), output) for _ in range(10 * rounds))
        return all(same(EVERY[name](model, x), expected) for _ in range(rounds))

    if not all(together(work)):
        raise SilentlyWrongError("another result in a thread")


@pytest.mark.parametrize(
    "name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel", "path_features", "to_dgn"]
)
def test_users_own_gradients_meanwhile(name):
    """Training in one thread while others look at another model: gradients arrive where they belong."""
    watched, trained, x = plain(), plain(), torch.randn(4, 3)
    trained(x).sum().backward()
    expected = [p.grad.clone() for p in trained.parameters()]

    def work(number):
        if number:
            EVERY[name](watched, x)
            return True
        for _ in range(10):
            trained.zero_grad()
            trained(x).sum().backward()
        return all(torch.equal(p.grad, g) for p, g in zip(trained.parameters(), expected, strict=True))

    if not all(together(work)):
        raise SilentlyWrongError("other gradients")


@pytest.mark.parametrize(
    "name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel", "path_features", "top_paths"]
)
def test_users_own_draws_meanwhile(name):
    """The user draws from the global generator in between: the numbers are those of a program without gatelab."""
    model, x = plain(), torch.randn(4, 3)
    torch.manual_seed(3)
    expected = torch.stack([torch.rand(()) for _ in range(DRAWS)])
    torch.manual_seed(3)
    done = threading.Event()

    def work(number):
        if number:
            for _ in range(DRAWS):
                EVERY[name](model, x)
                if done.is_set():
                    break
            return True
        drawn = []
        for _ in range(DRAWS):
            drawn.append(torch.rand(()))
            done.wait(1e-4)
        done.set()
        return torch.equal(torch.stack(drawn), expected)

    if not all(together(work, 3)):
        raise ChangedStateError("the user's random numbers are others when gatelab works in another thread")


def _meanwhile(name, model, change):
    """Call gatelab in two threads while a third one changes the model: any answer or refusal will do, but no crash."""
    x, done = torch.randn(4, 3), threading.Event()

    def work(number):
        if number:
            for _ in range(2):
                with contextlib.suppress(GatelabError):
                    EVERY[name](model, x)
            done.set()
            return
        for _ in range(20_000):
            if done.is_set():
                break
            change()

    together(work, 3)


@pytest.mark.parametrize(
    "name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel", "to_dgn", "top_paths"]
)
def test_weights_change_meanwhile(name):
    """An optimiser writes to the weights while gatelab looks."""
    model = plain()

    @torch.no_grad()
    def step():
        for parameter in model.parameters():
            parameter.add_(1e-3 * torch.ones_like(parameter))

    _meanwhile(name, model, step)


@pytest.mark.parametrize("name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel"])
def test_layers_come_and_go_meanwhile(name):
    """Modules are added and removed while gatelab iterates over them."""
    model = plain()

    def add_and_remove():
        model.extra = nn.Linear(2, 2)
        del model.extra

    _meanwhile(name, model, add_and_remove)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads is the attack
@pytest.mark.parametrize("name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel", "OverlapKernel"])
def test_after_a_fork(name):
    """A child that starts after gatelab has worked here, as a data loader's do."""
    model, x = plain(), torch.randn(4, 3)
    EVERY[name](model, x)
    child = os.fork()
    if child == 0:
        try:
            EVERY[name](model, x)
            os._exit(0)
        except BaseException:
            os._exit(1)
    for _ in range(200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        threading.Event().wait(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise RawError("the child hangs")
    if os.waitstatus_to_exitcode(status):
        raise RawError(f"the child ended with {status}")
